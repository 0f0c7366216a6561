"""Bundling the JavaScript modules of the view."""

import re
from pathlib import Path

import pytest

from regard.viz.page import DEFINITION, VIEW, bundle, modules


def written(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / f"{name}.js").write_text(text)
    return folder


def test_modules_follow_their_imports(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        entry='// Last.\nimport { b } from "./b.js";\n'
        'import {\n  a,\n  A,\n} from "./a.js";\n\nexport const c = a(b, A);\n',
        b='import { a } from "./a.js";\n\nexport const b = a(1);\n',
        a="export class A {}\nexport async function a(x) {\n  return x;\n}\n",
        unused="export const unused = 1;\n",
    )
    assert bundle(folder) == (
        "class A {}\nasync function a(x) {\n  return x;\n}\n\nconst b = a(1);\n\nexport const c = a(b, A);\n"
    )


def test_two_modules_with_one_name(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        entry='import { a } from "./a.js";\nfunction twice() {}\n',
        a="export const a = 1;\nclass twice {}\n",
    )
    with pytest.raises(ValueError, match=r"a\.js and entry\.js both define twice"):
        bundle(folder)


def test_a_circle(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        entry='import { a } from "./a.js";\n',
        a='import { b } from "./b.js";\n',
        b='import { a } from "./a.js";\n',
    )
    with pytest.raises(ValueError, match=r"entry\.js > a\.js > b\.js > a\.js"):
        bundle(folder)


@pytest.mark.parametrize(
    "line",
    [
        'import * as all from "./b.js";',
        'import { b as other } from "./b.js";',
        'import "./b.js";',
        'import { b } from "elsewhere";',
        "export default 1;",
        "export { a };",
        "const { a, b } = c;",
        "const [a, b] = c;",
        "export const [a, b] = c;",
    ],
)
def test_unsupported_forms(tmp_path: Path, line: str) -> None:
    folder = written(tmp_path, entry='import { a } from "./a.js";\n', a=f"{line}\n", b="export const b = 1;\n")
    with pytest.raises(ValueError, match=r"a\.js cannot be bundled"):
        bundle(folder)


def test_unsupported_forms_in_the_entry(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"entry\.js cannot be bundled"):
        bundle(written(tmp_path, entry='import * as all from "./a.js";\n', a=""))


def test_the_view() -> None:
    """The bundle contains every module with code, imports nothing, and exports the functions of the entry
    module.
    """
    text = bundle()
    assert not re.search(r"^import\b", text, re.MULTILINE)
    assert re.findall(r"^export [\w ]+", text, re.MULTILINE) == [
        "export async function show",
        "export async function showPage",
        "export default ",
    ]
    for name in modules():
        defined = DEFINITION.findall((VIEW / name).read_text(encoding="utf-8"))
        assert defined
        assert set(defined) <= set(DEFINITION.findall(text)), name


def test_no_circular_imports() -> None:
    """Types of two modules may refer to each other; the bundler ignores them."""
    known = {
        name: set(re.findall(r'^(?!/).* from "\./([\w-]+\.js)"', (VIEW / name).read_text(encoding="utf-8"), re.M))
        for name in modules()
    }

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, f"{' > '.join((*above, name))}"
        for imported in known[name] - {"data.js"}:  # types only, see `view_types`
            visit(imported, (*above, name))

    for name in known:
        visit(name, ())
