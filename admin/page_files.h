#pragma once

// The files of the page, which are inside the binary.
//
//   admin/page/*, libraries of packages --(embed_page.py, when the binary is built)--> page_files
//
// Constant; any thread.

#include <span>
#include <string_view>

namespace tarry::admin {

struct PageFile {
  std::string_view name;  // Without a folder: "index.html".
  std::string_view content_type;
  std::string_view hash;  // The hash of its content.
  std::string_view content;
  std::string_view packed;  // The same, by gzip.
};

// In the order of their names.
extern const std::span<const PageFile> page_files;

// Null: there is none of that name.
const PageFile* find_page_file(std::string_view name);

}  // namespace tarry::admin
