"""Sphinx's settings for the site that `make docs` builds; `python -m tools.site` runs it."""

from tools.site.signatures import FOREIGN

import headrace

project = "Headrace"
version = release = headrace.__version__
html_title = f"Headrace {version}"
root_doc = "README"
language = "en"
smartquotes = False  # many quotes are code

extensions = ["myst_parser", "sphinx.ext.autodoc", "tools.site.hooks"]
myst_heading_anchors = 6  # links to headings work here as on a code host

# The reference. Every name in a signature must lead somewhere, except these.
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", rf"{FOREIGN.pattern}.*"),
    ("py:class", r"(pyarrow|collections)\..*"),
    ("py:class", r"headrace\.inspect\.figure_values\.Figures"),  # the guide's page of metrics is it
    ("py:class", "SketchFunction"),  # of functions that users pass on to one another
]
autoclass_content = "both"
autodoc_member_order = "alphabetical"
autodoc_typehints_format = "short"
maximum_signature_line_length = 80
python_display_short_literal_types = True
toc_object_entries_show_parents = "hide"

# What is seen. Fonts, scripts and the search index are files of the site: no network is needed.
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_domain_indices = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "default"
