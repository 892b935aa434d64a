#include "admin/page_routes.h"

#include <algorithm>
#include <string>

#include <fmt/core.h>

#include "admin/page_files.h"
#include "base/list_text.h"
#include "base/log.h"

namespace tarry::admin {
namespace {

namespace asio = boost::asio;

// Nothing but our own files, no inline script or style, and no text that becomes markup: what a
// record contains cannot run as a part of the page.
constexpr std::string_view page_policy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

bool accepts_gzip(std::string_view accept_encoding) {
  while (!accept_encoding.empty()) {
    const auto element = take_element(accept_encoding, ',');
    if (element == "gzip") return true;
    // A weight, other than that which refuses it.
    if (element.starts_with("gzip;") && !element.ends_with("q=0") && !element.ends_with("q=0.0"))
      return true;
  }
  return false;
}

bool has_tag(std::string_view if_none_match, std::string_view tag) {
  while (!if_none_match.empty()) {
    const auto element = take_element(if_none_match, ',');
    if (element == tag || element == "*") return true;
  }
  return false;
}

Reply file_reply(const Call& call, const PageFile& file) {
  Reply reply;
  reply.content_type = file.content_type;
  // Weak: the two encodings have the same one.
  const std::string tag = fmt::format("W/\"{}\"", file.hash);
  reply.headers.emplace_back("ETag", tag);
  // A browser asks each time, so that the files of two releases are never mixed.
  reply.headers.emplace_back("Cache-Control", "no-cache");
  reply.headers.emplace_back("Vary", "Accept-Encoding");
  reply.headers.emplace_back("Content-Security-Policy", page_policy);
  reply.headers.emplace_back("Cross-Origin-Opener-Policy", "same-origin");
  reply.headers.emplace_back("Cross-Origin-Resource-Policy", "same-origin");
  if (has_tag(call.if_none_match, tag)) {
    reply.status = 304;
    return reply;
  }
  const bool packed =
      // A picture may be larger when it is packed.
      file.packed.size() < file.content.size() && accepts_gzip(call.accept_encoding);
  if (packed) reply.headers.emplace_back("Content-Encoding", "gzip");
  reply.body = packed ? file.packed : file.content;
  return reply;
}

}  // namespace

const PageFile* find_page_file(std::string_view name) {
  const auto found = std::ranges::find(page_files, name, &PageFile::name);
  return found == page_files.end() ? nullptr : &*found;
}

asio::awaitable<Reply> get_page(Call& call) {
  const PageFile* const file = find_page_file("index.html");
  if (file == nullptr) throw Refused{404, "this binary was built without the page"};
  co_return file_reply(call, *file);
}

asio::awaitable<Reply> get_page_file(Call& call) {
  const PageFile* const file = find_page_file(call.part(1));
  if (file == nullptr)
    throw Refused{404, fmt::format("the page has no file '{}'", printable(call.part(1)))};
  co_return file_reply(call, *file);
}

}  // namespace tarry::admin
