"""Read and write files and folders. Writes are atomic, and only one process at a time changes a folder."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.io.folders import (
        append_inside as append_inside,
        explain_missing_folder as explain_missing_folder,
        new_folder as new_folder,
        write_inside as write_inside,
    )
    from regard.io.locking import (
        hold_lock as hold_lock,
        remove_stale_lock as remove_stale_lock,
        wait_for_lock as wait_for_lock,
    )
    from regard.io.temporary import remove_quietly as remove_quietly, tidy as tidy
    from regard.io.writing import (
        cannot_write as cannot_write,
        check_folder as check_folder,
        check_name as check_name,
        check_writable as check_writable,
        make_folder as make_folder,
        open_regular as open_regular,
        refuse_input as refuse_input,
        refuse_links as refuse_links,
        write_file as write_file,
        write_json as write_json,
        write_new as write_new,
    )

late(__name__)
