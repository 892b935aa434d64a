#!/usr/bin/env python3
"""What scripts/check_docs.py finds, and that it finds nothing in a tree in order."""

import unittest

from made_up_tree import MadeUpTree

IN_ORDER = {
    "README.md": "[the log](docs/log.md#its-end), [outside](https://kafka.apache.org), [why](docs/adr/0001-why.md)\n",
    "docs/log.md": "# A log\n## Its end\n",
    "docs/adr/0001-why.md": "# Why\n```\n[an example](gone.md)\n```\n",
    "storage/CMakeLists.txt": "",
    "storage/README.md": "[up](../README.md)\n",
}


class CheckDocs(MadeUpTree):
    script = "check_docs.py"
    in_order = IN_ORDER

    def test_a_tree_in_order_passes(self):
        self.passes()

    def test_a_link_to_a_file_that_is_not_there_is_found(self):
        self.refuses("storage/README.md: link to ../docs/gone.md, which is not there",
                     **{"storage/README.md": "[it](../docs/gone.md)"})

    def test_a_link_to_a_heading_that_is_not_there_is_found(self):
        self.refuses("link to ../docs/log.md#its-start: no such heading",
                     **{"storage/README.md": "[it](../docs/log.md#its-start)\n"})

    def test_a_folder_of_the_source_without_a_readme_is_found(self):
        self.refuses("delay/ has no README.md", **{"delay/CMakeLists.txt": ""})

    def test_a_decision_that_no_other_document_links_to_is_found(self):
        self.refuses("docs/adr/0002-how.md is linked from nowhere", **{"docs/adr/0002-how.md": "# How\n"})

    def test_a_header_that_the_readme_of_its_folder_does_not_name_is_found(self):
        self.refuses("storage/README.md does not name storage/parts/journal.h",
                     **{"storage/CMakeLists.txt": "tarry_library(storage SOURCES log.cc)", "storage/log.h": "",
                        "storage/parts/journal.h": "", "storage/README.md": "[up](../README.md) `log.h`\n"})

    def test_a_test_that_a_table_names_and_that_is_not_there_is_found(self):
        table = "| it broke | test |\n|---|---|\n| once | log \"a flush that fails %s\", \"the same from Python...\" |\n"
        cases = {"tests/log_test.cc": 'TEST_CASE(\n    "a flush that fails is "\n    "repeated") {}\n',
                 "tests/test_log.py": '@case("the same from Python, too")\n'}
        self.passes(**{"storage/README.md": table % "is repeated"}, **cases)
        self.refuses('storage/README.md: there is no test "a flush that fails was repeated"',
                     **{"storage/README.md": table % "was repeated"}, **cases)


if __name__ == "__main__":
    unittest.main()
