"""Names in code font lead to where the reference explains them, in pages and docstrings alike."""

import builtins
import re
from collections import defaultdict
from collections.abc import Iterable

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

NAME = re.compile(r"[A-Za-z_][\w.]*")


def unlink_builtins(app: Sphinx, doctree: nodes.document) -> None:
    """Turn references to Python's own types, such as `bytes`, into plain text.

    Sphinx would otherwise link them to any attribute of the same name, and warn where there are several.
    """
    del app
    for reference in list(doctree.findall(addnodes.pending_xref)):
        if reference.get("refdomain") == "py" and hasattr(builtins, reference["reftarget"]):
            conditions = [each for each in reference if isinstance(each, addnodes.pending_xref_condition)]
            usual = [each for each in conditions if each["condition"] == "*"]
            reference.replace_self(usual[0].children if usual else reference.children)


class LinkNames(SphinxPostTransform):
    """Links `regard.train(...)`, and where there is one thing of that name, `MultiHeadAttention`,
    `causal_mask` or `Score.prepare`: a class, a function with a name of several words, a member of a class.

    A plain word like `mask` may mean anything.
    """

    default_priority = 400

    def run(self, **_: object) -> None:
        """Replace the literals of one page."""
        domain = self.env.domains.python_domain
        names = self.names(domain)
        for literal in list(self.document.findall(nodes.literal)):
            inside = _ancestors(literal)
            if any(isinstance(each, nodes.reference | nodes.title | nodes.term) for each in inside):
                continue
            found = NAME.match(literal.astext())
            full = names.get(found[0]) if found and literal.astext()[found.end() :][:1] in ("", "(") else None
            if full is None or any(full in each.get("ids", ()) for each in _descriptions(inside)):
                continue
            where = domain.objects[full]
            link = make_refnode(
                self.app.builder, self.env.docname, where.docname, where.node_id, literal.deepcopy(), full
            )
            literal.replace_self(link)

    def names(self, domain: PythonDomain) -> dict[str, str]:
        """Return what can be linked: full names, and last parts that are distinctive and there once."""
        short = defaultdict(set)
        names = {}
        for full, entry in domain.objects.items():
            *_, owner, last = ["", *full.split(".")]
            if owner:  # the package's own name alone is also that of a recipe and of a command
                names[full] = full
            if entry.objtype in ("class", "function") and not entry.aliased and re.search(r"[A-Z_]", last):
                short[last].add(full)
            elif owner[:1].isupper():
                short[f"{owner}.{last}"].add(full)
        return {**{last: full for last, (full, *more) in short.items() if not more}, **names}


def _ancestors(node: nodes.Node) -> list[nodes.Element]:
    found = []
    while (node := node.parent) is not None:
        found.append(node)
    return found


def _descriptions(inside: Iterable[nodes.Element]) -> list[nodes.Element]:
    """Return the signatures of what a node is the description of: a docstring does not link to itself."""
    described = [each for each in inside if isinstance(each, addnodes.desc)]
    return [each for desc in described for each in desc.children if isinstance(each, addnodes.desc_signature)]
