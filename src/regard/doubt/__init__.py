"""Doubt: which translations of a run cannot be trusted, and why."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.doubt.calibration import FALSE_ALARMS, FaultResult, TrustReport, calibrate
    from regard.doubt.doubt_files import check_doubt_file, write_doubts
    from regard.doubt.doubts import Doubt, Doubter, doubt

late(__name__)

__all__ = [
    "FALSE_ALARMS",
    "Doubt",
    "Doubter",
    "FaultResult",
    "TrustReport",
    "calibrate",
    "check_doubt_file",
    "doubt",
    "write_doubts",
]
