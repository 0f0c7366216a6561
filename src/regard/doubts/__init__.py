"""Doubt: which translations of a run cannot be trusted, and why."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.doubts.calibration import (
        FALSE_ALARMS as FALSE_ALARMS,
        SMALLEST as SMALLEST,
        calibrate_doubt as calibrate_doubt,
        check_calibration as check_calibration,
    )
    from regard.doubts.calibration_file import FaultResult as FaultResult, TrustReport as TrustReport
    from regard.doubts.doubt_files import check_doubt_file as check_doubt_file, write_doubts as write_doubts
    from regard.doubts.sentence_doubt import Doubt as Doubt, Doubter as Doubter, doubt as doubt

late(__name__)
