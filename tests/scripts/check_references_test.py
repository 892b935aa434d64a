#!/usr/bin/env python3
"""What scripts/check_references.py finds, and that it finds nothing in a tree in order."""

import unittest

from made_up_tree import MadeUpTree

IN_ORDER = {
    "README.md": "`storage/log` and `storage/log.h`, `log.h`; `Log::append()`; `--shards 2`, `tarry.max.groups=1`\n",
    "docs/adr/0001-a-decision.md": "",
    "storage/log.h": '// The tail (docs/adr/0001) is in storage/; <sys/stat.h>, RFC 4648 section 4.\n'
                     '// append() of Log::append is told "--shards", see log.h.\n'
                     '//   client --request--> broker <--answer-- client\n'
                     'class Log { void append(); };  class LogSegment;  // Many LogSegments.\n'
                     'const char* keys[] = {"--shards", "tarry.max.groups", "// nothing/of.this.is a comment()"};\n',
    "scripts/run": '#!/usr/bin/env bash\n# Runs storage/FOLDER.\necho "# no_comment()"\n',
    "tests/case.py": '"""Runs append()."""\nname = "no_comment()"\n',
}


class CheckReferences(MadeUpTree):
    script = "check_references.py"
    in_order = IN_ORDER

    def test_a_tree_in_order_passes(self):
        self.passes()

    def test_a_path_in_a_document_that_is_not_there_is_named_with_file_and_line(self):
        self.refuses("docs/a.md:2: names storage/gone.h", **{"docs/a.md": "\nsee `storage/gone.h`"})

    def test_a_path_in_a_comment_that_is_not_there_is_found(self):
        self.refuses("storage/b.cc:2: names scripts/gone", **{"storage/b.cc": "int x;\n// scripts/gone does it.\n"})

    def test_a_file_that_is_named_without_its_folder_is_found(self):
        self.refuses("names gone_test.cc", **{"storage/b.cc": "int x;  // gone_test.cc shows it.\n"})

    def test_a_decision_by_a_number_that_is_not_there_is_found(self):
        self.refuses("names docs/adr/0002", **{"storage/b.cc": "// docs/adr/0002\n"})

    def test_a_function_that_is_not_in_the_code_is_found(self):
        self.refuses("names retire()", **{"storage/b.cc": "/* After\n   retire() nothing is there. */\n"})

    def test_a_member_that_is_not_in_the_code_is_found(self):
        self.refuses("names Log::truncate", **{"docs/a.md": "`Log::truncate`"})

    def test_a_type_that_is_not_in_the_code_is_found(self):
        self.refuses("names SegmentIndex", **{"storage/b.cc": "// As SegmentIndex does.\n"})

    def test_what_stands_in_a_string_alone_is_no_function(self):
        self.refuses("names rename_all()", **{"storage/b.cc": '// As rename_all() does.\nconst char* text = "rename_all()";\n'})

    def test_a_member_variable_that_is_not_in_the_code_is_found(self):
        self.refuses("names pending_", **{"storage/b.cc": "// All of pending_ is written.\nint waiting_;\n"})
        self.passes(**{"storage/b.cc": "//   pending_.write(log);\n// The metrics tarry_storage_ and waiting_ ...\nint waiting_;\n"})

    def test_an_option_that_is_not_in_the_code_is_found(self):
        self.refuses("names --threads", **{"docs/a.md": "`--threads 2`"})

    def test_a_setting_that_is_not_in_the_code_is_found(self):
        self.refuses("names tarry.max.members", **{"docs/a.md": "`tarry.max.members=2`"})

    def test_comments_of_scripts_and_texts_of_python_are_read_too(self):
        self.refuses("scripts/a.py:1: names gone()", **{"scripts/a.py": '"""Calls gone()."""\n'})
        self.refuses("scripts/a.py:2: names gone()", **{"scripts/a.py": "x = 1\ny = 2  # As gone() does.\n"})
        self.refuses("scripts/b:2: names gone()", **{"scripts/b": "#!/bin/sh\n# As gone() does.\n"})
        self.refuses("storage/CMakeLists.txt:1: names gone()", **{"storage/CMakeLists.txt": "# As gone() does.\n"})

    def test_a_page_that_is_not_in_the_repository_is_refused_by_its_name_or_number(self):
        for page in ("DESIGN section 5", "trap 7", "section 3", "issue 12", "INTERFACE"):
            self.refuses("points to a page that is not here", **{"storage/b.cc": f"// As {page} says.\n"})

    def test_the_name_of_a_test_case_points_to_no_page_either(self):
        for case in ('TEST_CASE("trap 7: all is lost") {}', 'TEST_CASE_FIXTURE(World,\n                  "all is "\n                  "lost: issue 7") {}'):
            self.refuses("points to a page that is not here", **{"tests/storage/b_test.cc": case + "\n"})


if __name__ == "__main__":
    unittest.main()
