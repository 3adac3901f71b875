"""Sphinx's settings for the documentation: furo's theme, plain Markdown, nothing fetched from elsewhere.

The pages that Sphinx reads are put together by `docs.site.stage`. Warnings are errors (`scripts/docs`), so a
link or an anchor that leads nowhere fails the build.
"""

from __future__ import annotations

import sys
from pathlib import Path

import phalanx

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from docs.site import commands

project = "Phalanx"
version = release = phalanx.__version__
extensions = ["myst_parser"]
root_doc = "index"
language = "en"
nitpicky = True
smartquotes = False  # they would make a dash of the two before an option
exclude_patterns: list[str] = []

myst_heading_anchors = 4
myst_enable_extensions: list[str] = []
highlight_language = "none"

html_theme = "furo"
html_title = f"Phalanx {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_favicon = "static/icon.svg"
html_copy_source = False
html_use_index = False
html_show_copyright = False
html_last_updated_fmt = None
html_theme_options = {"navigation_with_keys": True}
pygments_style = "tango"

man_pages = commands.manuals()
man_show_urls = False
