"""Files and folders that are written whole or not at all, by one process at a time."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.io.folders import new_folder
    from regard.io.inside import append_inside, still_there, write_inside
    from regard.io.locking import holding, is_in_use, keep_in_use, taking_turns
    from regard.io.state import state_folder
    from regard.io.temporary import remove_quietly, tidy
    from regard.io.together import writing_files
    from regard.io.writing import (
        cannot_write,
        check_folder,
        check_name,
        check_writable,
        make_folder,
        open_own,
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
    "holding",
    "is_in_use",
    "keep_in_use",
    "make_folder",
    "new_folder",
    "open_own",
    "refuse_links",
    "remove_quietly",
    "state_folder",
    "still_there",
    "taking_turns",
    "tidy",
    "write_file",
    "write_inside",
    "write_json",
    "write_new",
    "writing_files",
]
