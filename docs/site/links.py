"""Link names in code font to the API reference, in pages and docstrings."""

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
    """Convert references to built-in types, such as `bytes`, to plain text.

    Otherwise, Sphinx links such a type to any attribute with the same name, and prints a warning if there are
    several.
    """
    del app
    for reference in list(doctree.findall(addnodes.pending_xref)):
        if reference.get("refdomain") == "py" and hasattr(builtins, reference["reftarget"]):
            conditions = [child for child in reference if isinstance(child, addnodes.pending_xref_condition)]
            unresolved = [condition for condition in conditions if condition["condition"] == "*"]
            reference.replace_self(unresolved[0].children if unresolved else reference.children)


class LinkNames(SphinxPostTransform):
    """Link full names such as `regard.train(...)`, and unique short names such as `MultiHeadAttention`,
    `causal_mask` or `Score.prepare`: classes, functions with underscores, and members of classes.

    Single words such as `mask` are ambiguous and remain plain text.
    """

    default_priority = 400

    def run(self, **_: object) -> None:
        """Replace the literals of a page by links."""
        domain = self.env.domains.python_domain
        names = self.names(domain)
        for literal in list(self.document.findall(nodes.literal)):
            ancestors = _ancestors(literal)
            if any(isinstance(node, nodes.reference | nodes.title | nodes.term) for node in ancestors):
                continue
            match = NAME.match(literal.astext())
            full = names.get(match[0]) if match and literal.astext()[match.end() :][:1] in ("", "(") else None
            if full is None or any(full in node.get("ids", ()) for node in _descriptions(ancestors)):
                continue
            where = domain.objects[full]
            link = make_refnode(
                self.app.builder, self.env.docname, where.docname, where.node_id, literal.deepcopy(), full
            )
            literal.replace_self(link)

    def names(self, domain: PythonDomain) -> dict[str, str]:
        """Return the names that can be linked: full names, and distinctive last parts that occur once."""
        short = defaultdict(set)
        names = {}
        for full, entry in domain.objects.items():
            *_, owner, last = ["", *full.split(".")]
            if owner:  # the package's name alone is also a recipe and a command
                names[full] = full
            if entry.objtype in ("class", "function") and not entry.aliased and re.search(r"[A-Z_]", last):
                short[last].add(full)
            elif owner[:1].isupper():
                short[f"{owner}.{last}"].add(full)
        return {**{last: full for last, (full, *more) in short.items() if not more}, **names}


def _ancestors(node: nodes.Node) -> list[nodes.Element]:
    ancestors = []
    while (node := node.parent) is not None:
        ancestors.append(node)
    return ancestors


def _descriptions(ancestors: Iterable[nodes.Element]) -> list[nodes.Element]:
    """Return the signatures that enclose a node. A docstring does not link to itself."""
    described = [node for node in ancestors if isinstance(node, addnodes.desc)]
    return [child for desc in described for child in desc.children if isinstance(child, addnodes.desc_signature)]
