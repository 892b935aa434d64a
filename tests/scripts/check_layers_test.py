#!/usr/bin/env python3
"""What scripts/check_layers.py finds, and that it finds nothing in a tree in order."""

import unittest

from made_up_tree import MadeUpTree

IN_ORDER = {
    "base/CMakeLists.txt": "tarry_library(base SOURCES ids.cc)",
    "base/ids.h": "",
    "base/ids.cc": '#include "base/ids.h"\n',
    "broker/CMakeLists.txt": "tarry_library(broker\n  ORDER low . high\n  SOURCES broker.cc\n  USES base)",
    "broker/low/a.h": '#include "base/ids.h"\n',
    "broker/broker.h": '#include "broker/low/a.h"\n',
    "broker/broker.cc": '#include "broker/broker.h"\n',
    "broker/high/b.h": '#include "broker/broker.h"\n#include "broker/low/a.h"\n',
}

PAGE = "| 5 | `broker/` | broker | base |\n| 1 | `base/` | ids | - |\n\n    low < . < high\n"


class CheckLayers(MadeUpTree):
    script = "check_layers.py"
    in_order = IN_ORDER

    def test_a_tree_in_order_passes(self):
        self.passes()

    def test_a_folder_that_uses_does_not_list_is_named_with_file_and_line(self):
        self.refuses("base/ids.h:2: base may not use broker",
                     **{"base/ids.h": '\n#include "broker/broker.h"\n'})

    def test_an_include_of_a_sub_folder_that_stands_above_fails(self):
        self.refuses("broker/low/a.h:1: broker/low may not use broker/high",
                     **{"broker/low/a.h": '#include "broker/high/c.h"\n', "broker/high/c.h": ""})

    def test_a_sub_folder_without_a_place_in_the_order_fails(self):
        self.refuses("broker/new has no place", **{"broker/new/d.h": '#include "broker/low/a.h"\n'})

    def test_a_circle_in_one_folder_fails_and_its_ties_are_named(self):
        self.refuses("broker/low/a -> broker/low/e, broker/low/e -> broker/low/a",
                     **{"broker/low/a.h": '#include "broker/low/e.h"\n', "broker/low/e.h": '#include "broker/low/a.h"\n'})

    def test_a_circle_through_a_source_file_is_one_too(self):
        self.refuses("2 files include each other in a circle",
                     **{"broker/low/a.cc": '#include "broker/low/e.h"\n', "broker/low/e.h": '#include "broker/low/a.h"\n'})

    def test_a_file_that_is_included_without_its_folder_or_in_angle_brackets_counts(self):
        self.refuses("broker/low/a -> broker/low/e, broker/low/e -> broker/low/a",
                     **{"broker/low/a.h": '#include "e.h"\n', "broker/low/e.h": '#include "../low/a.h"\n'})
        self.refuses("broker/low/a.h:1: broker/low may not use broker/high", **{"broker/low/a.h": "#include <broker/high/b.h>\n"})

    def test_what_is_installed_counts_as_nothing_of_ours(self):
        self.passes(**{"broker/low/a.h": "#include <sys/stat.h>\n#include <vector>\n"})

    def test_a_circle_in_the_tests_fails(self):
        self.refuses("tests/broker/world -> tests/broker/batches",
                     **{"tests/broker/world.h": '#include "batches.h"\n', "tests/broker/batches.h": '#include "tests/broker/world.h"\n'})

    def test_a_root_without_folders_of_ours_is_refused(self):
        self.in_order = {}
        self.refuses("no folder here has a CMakeLists.txt")

    def test_a_source_that_no_library_is_made_from_fails(self):
        self.refuses("broker/low/a.cc: it stands in no SOURCES of broker/CMakeLists.txt",
                     **{"broker/low/a.cc": '#include "broker/low/a.h"\n'})

    def test_a_source_that_is_not_there_fails(self):
        self.refuses("base/CMakeLists.txt: SOURCES has base/old.cc, which is not there",
                     **{"base/CMakeLists.txt": "tarry_library(base SOURCES ids.cc old.cc)"})

    def test_the_sources_of_a_library_and_of_a_program_count_together(self):
        self.passes(**{"broker/CMakeLists.txt": IN_ORDER["broker/CMakeLists.txt"]
                       + "\ntarry_executable(tarry SOURCES main.cc ${made} USES broker)", "broker/main.cc": ""})

    def test_a_page_that_states_the_layers_as_they_are_passes(self):
        self.passes(**{"docs/ARCHITECTURE.md": PAGE})

    def test_a_page_whose_table_differs_from_uses_fails(self):
        self.refuses("broker/ may include base web; its USES say base",
                     **{"docs/ARCHITECTURE.md": PAGE.replace("| base |", "| base, web |")})

    def test_a_page_with_another_order_fails(self):
        self.refuses("the order of broker/ is not: low < . < high",
                     **{"docs/ARCHITECTURE.md": PAGE.replace("low < . < high", "low < high")})


if __name__ == "__main__":
    unittest.main()
