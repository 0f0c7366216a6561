"""Run the steps of Containerfile one by one in a temporary folder, without a builder: make try-container.

The base image, the user and the ports of a container are not tested.
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

ROOT, HOME = Path(__file__).parent.parent, "/home/regard"


def main() -> None:
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as place:
        steps = re.findall(r"^([A-Z]+) (.*)$", text.replace(HOME, place), re.MULTILINE)
        env = os.environ | {"HOME": place}
        words = [shlex.split(value.strip("[]").replace(",", "")) for name, value in steps if name in ("ENTRYPOINT", "CMD")]
        for name, value in steps:
            if name == "ENV":
                env |= {"PATH": f"{value.partition('=')[2]}:{os.environ['PATH']}"}
            elif name == "COPY":
                *files, _ = value.split()
                for file in (file for pattern in files for file in ROOT.glob(pattern)):
                    shutil.copy(file, place)
            elif name == "RUN" and not value.startswith("useradd"):
                subprocess.run(value, shell=True, cwd=place, env=env, check=True)
        subprocess.run(["regard", "train", "signal2", "--steps", "2"], cwd=place, env=env, check=True)
        health = next(value.partition(" CMD ")[2] for name, value in steps if name == "HEALTHCHECK")
        with subprocess.Popen([word for part in words for word in part], cwd=place, env=env) as explorer:
            try:
                for _ in range(60):
                    time.sleep(1)
                    if subprocess.run(health, shell=True, env=env, capture_output=True).returncode == 0:
                        return
                raise SystemExit(f"the health check fails: {health}")
            finally:
                explorer.terminate()


if __name__ == "__main__":
    main()
