# SPDX-License-Identifier: Apache-2.0
"""How Sphinx builds the documentation: ``sphinx-build -W -b html doc/source doc/build/html``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))

from vmqos.version import version as _vmqos_version  # noqa: E402

project = "vmqos"
author = "the vmqos developers"
project_copyright = author
release = version = _vmqos_version()

extensions = [
    "sphinx.ext.apidoc",
    "sphinx.ext.autodoc",
    "cliff.sphinxext",
    "oslo_config.sphinxext",
]
exclude_patterns = ["examples"]
highlight_language = "none"
smartquotes = False
today_fmt = "%Y-%m-%d"

html_theme = "alabaster"
html_static_path = ["_static"]
html_theme_options = {
    "description": "Cache ways for the VMs that were promised them",
    "fixed_sidebar": True,
    "page_width": "1080px",
    "sidebar_width": "240px",
    "show_powered_by": False,
}
html_sidebars = {"**": ["about.html", "searchfield.html", "navigation.html"]}
html_show_sourcelink = False

man_pages = [
    ("man/vmqos", "vmqos", "show which VM owns which cache ways, and why", [author], 1),
    ("man/vmqos-agent", "vmqos-agent", "keep the cache promises of flavors on a compute node", [author], 8),
    ("man/vmqos-gateway", "vmqos-gateway", "metrics, page and OpenStack for vmqos-agent", [author], 8),
    ("man/vmqos.conf", "vmqos.conf", "configuration of vmqos-agent and vmqos-gateway", [author], 5),
]
man_show_urls = True

# The API reference is made of the docstrings when the documentation is built; none of it is committed.
apidoc_modules = [
    {
        "path": str(CHECKOUT / "vmqos"),
        "destination": "reference/python",
        "separate_modules": True,
        "module_first": True,
        "no_headings": False,
        "include_private": False,
        "max_depth": 2,
        "automodule_options": {"members", "show-inheritance"},
    }
]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_use_type_comments = False

# Building the documentation needs neither libvirt nor FUSE.
autodoc_mock_imports = [name for name in ("libvirt", "mfusepy") if importlib.util.find_spec(name) is None]

autoprogram_cliff_application = "vmqos"
# What cliff gives every command that prints something; told once, in reference/command-line.
autoprogram_cliff_ignored = [
    "--help",
    "-f",
    "-c",
    "--quote",
    "--noindent",
    "--max-width",
    "--fit-width",
    "--print-empty",
    "--sort-column",
    "--sort-ascending",
    "--sort-descending",
    "--prefix",
]
