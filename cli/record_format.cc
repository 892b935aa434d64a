#include "cli/record_format.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"
#include "cli/io/json.h"
#include "cli/io/text.h"

namespace tarry::cli {
namespace {

void append_text(std::string& to, const std::optional<std::string_view>& text) {
  if (text) to += *text;
}

// The text for an error, in which a backslash stays single: the error is often about it.
std::string as_typed(std::string_view text) {
  std::string shown;
  for (std::size_t from = 0;; ++from) {
    const auto backslash = std::min(text.find('\\', from), text.size());
    shown += cell(text.substr(from, backslash - from));
    if (backslash == text.size()) return shown;
    shown += '\\';
    from = backslash;
  }
}

// Appends what the escape at the front of `text` stands for, and returns its length; 0: it is none.
std::size_t append_escape(std::string_view text, std::string& to) {
  constexpr std::string_view letters = "nrt\\", meant = "\n\r\t\\";
  const char letter = text.size() > 1 ? text[1] : '\0';
  if (const auto at = letters.find(letter); at != letters.npos) {
    to += meant[at];
    return 2;
  }
  constexpr std::size_t hex_bytes = 4;  // \xHH
  if (letter != 'x' || text.size() < hex_bytes) return 0;
  unsigned value = 0;
  const char* const last = text.data() + hex_bytes;
  // Two digits exactly, so that any text may follow; from_chars() alone would be content with one.
  const auto [end, error] = std::from_chars(text.data() + 2, last, value, 16);
  if (error != std::errc{} || end != last) return 0;
  to += static_cast<char>(value);
  return hex_bytes;
}

std::string length_of(const std::optional<std::string_view>& text) {
  // As in kcat: -1 is the length of a null value.
  return text ? std::to_string(text->size()) : "-1";
}

void append_headers(std::string& to, const ConsumedRecord& record) {
  bool comma = false;
  for (const auto& [name, value] : record.headers) {
    if (comma) to += ',';
    comma = true;
    to += name;
    to += '=';
    // As kcat: a null value is not an empty one.
    to += value.value_or("NULL");
  }
}

}  // namespace

Result<RecordFormat> RecordFormat::parse(std::string_view text) {
  RecordFormat format;
  std::string literal;
  // Neighbouring literals become one part: the format is parsed once, but applied to each record.
  const auto end_literal = [&] {
    if (!literal.empty()) format.parts_.push_back({0, std::move(literal)});
    literal.clear();
  };
  const auto refuse = [&](std::size_t at, std::size_t count) {
    return fail(
        Errc::invalid,
        fmt::format("{} in {}: known are %t %p %o %k %s %T %h %S %K %% and \\n \\r \\t \\\\ "
                    "\\xHH",
                    as_typed(text.substr(at, count)), as_typed(text)));
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c != '%' && c != '\\') {
      literal += c;
      continue;
    }
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (c == '%') {
      if (next == '%') {
        literal += '%';
      } else if (next != '\0' && std::string_view("tpokKsSTh").contains(next)) {
        end_literal();
        format.parts_.push_back({next, {}});
      } else {
        return refuse(i, 2);
      }
      ++i;
      continue;
    }
    const std::size_t length = append_escape(text.substr(i), literal);
    if (length == 0) return refuse(i, next == 'x' ? 4 : 2);
    i += length - 1;
  }
  end_literal();
  return format;
}

Result<std::string> unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    const std::size_t length = append_escape(text.substr(i), out);
    if (length == 0) {
      return fail(Errc::invalid, fmt::format("{}: known are \\n \\r \\t \\\\ and \\xHH",
                                             as_typed(text.substr(i, 2))));
    }
    i += length - 1;
  }
  return out;
}

void RecordFormat::append(const ConsumedRecord& record, std::string_view topic,
                          std::string& to) const {
  for (const auto& part : parts_) {
    switch (part.what) {
      case 't':
        to += topic;
        break;
      case 'p':
        to += std::to_string(record.partition);
        break;
      case 'o':
        to += std::to_string(record.offset);
        break;
      case 'T':
        to += std::to_string(record.timestamp);
        break;
      case 'k':
        append_text(to, record.key);
        break;
      case 'K':
        to += length_of(record.key);
        break;
      case 's':
        append_text(to, record.value);
        break;
      case 'S':
        to += length_of(record.value);
        break;
      case 'h':
        append_headers(to, record);
        break;
      default:
        to += part.text;
    }
  }
}

std::string json_of(const ConsumedRecord& record, std::string_view topic) {
  Json json;
  json["topic"] = topic;
  json["partition"] = record.partition;
  json["offset"] = record.offset;
  json["timestamp"] = record.timestamp;
  put_bytes(json, "key", record.key);
  put_bytes(json, "value", record.value);
  // An array and no object: names of headers may repeat, and their order counts.
  json["headers"] = Json::array();
  for (const auto& [name, value] : record.headers) {
    Json header;
    // Kafka does not check that names are UTF-8, so they may need base64 as values do.
    put_bytes(header, "name", name);
    put_bytes(header, "value", value);
    json["headers"].push_back(std::move(header));
  }
  return text_of(json);
}

}  // namespace tarry::cli
