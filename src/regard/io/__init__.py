"""Read and write files and folders. Writes are atomic, and only one process at a time changes a folder."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.io.folders import (
        append_inside,
        explain_missing_folder,
        new_folder,
        state_folder,
        write_inside,
    )
    from regard.io.locking import hold_lock, remove_stale_lock, wait_for_lock
    from regard.io.temporary import remove_quietly, tidy
    from regard.io.writing import (
        cannot_write,
        check_folder,
        check_name,
        check_writable,
        make_folder,
        open_regular,
        refuse_links,
        write_file,
        write_json,
        write_new,
    )

late(__name__)

__all__ = [
    "append_inside",
    "cannot_write",
    "check_folder",
    "check_name",
    "check_writable",
    "explain_missing_folder",
    "hold_lock",
    "make_folder",
    "new_folder",
    "open_regular",
    "refuse_links",
    "remove_quietly",
    "remove_stale_lock",
    "state_folder",
    "tidy",
    "wait_for_lock",
    "write_file",
    "write_inside",
    "write_json",
    "write_new",
]
