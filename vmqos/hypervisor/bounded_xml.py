# SPDX-License-Identifier: Apache-2.0
"""Reading XML that may be of any size, depth or kind.

libvirt writes its XML anew from what it holds, but a domain's ``<metadata>`` are what the user who defined the domain
put there, and the libvirt that answers need not be the host's own.
"""

from __future__ import annotations

from xml.etree import ElementTree

from vmqos.hypervisor import exceptions

LONGEST = 4 << 20
"""Characters: libvirt sends no longer strings (``REMOTE_STRING_MAX`` in src/remote/remote_protocol.x)."""

DEEPEST = 256
"""Elements within each other: libvirt's own parser, libxml2, takes no more (``xmlParserMaxDepth``)."""

MOST_ELEMENTS = 100_000
"""A domain with a thousand devices has some ten thousand elements. One takes about 200 bytes of memory."""


class _Tree(ElementTree.TreeBuilder):
    """Builds the tree, and gives up as soon as it gets too large. A class of its own: expat calls its methods."""

    _depth = 0
    _count = 0

    def start(self, tag: str, attrs: dict[str, str]) -> ElementTree.Element:
        self._depth += 1
        self._count += 1
        if self._depth > DEEPEST:
            raise ValueError(f"it is more than {DEEPEST} elements deep")
        if self._count > MOST_ELEMENTS:
            raise ValueError(f"it has more than {MOST_ELEMENTS} elements")
        return super().start(tag, attrs)

    def end(self, tag: str) -> ElementTree.Element:
        self._depth -= 1
        return super().end(tag)

    def doctype(self, *_: object) -> None:
        """Without a document type there are no entities, which could multiply the text or name files."""
        raise ValueError("it has a document type")


def parse(xml: str) -> ElementTree.Element:
    """Read a document; comments and processing instructions are left out.

    :raises vmqos.hypervisor.exceptions.UnreadableDescription: if it is no XML, has a document type, or is longer than
        :data:`LONGEST`, deeper than :data:`DEEPEST` or of more than :data:`MOST_ELEMENTS`.
    """
    if len(xml) > LONGEST:
        raise exceptions.UnreadableDescription(error=f"it is longer than {LONGEST} characters")
    parser = ElementTree.XMLParser(target=_Tree())
    try:
        parser.feed(xml)
        return parser.close()
    except (ElementTree.ParseError, ValueError) as error:
        raise exceptions.UnreadableDescription(error=error) from error
