#pragma once

// Json: writes one JSON text, without spaces, as tools print messages.
//
//   Json json;
//   json.begin_object();
//   json.key("acks").value(std::int16_t{1});
//   json.end_object();
//   json.text();  // {"acks":1}
//
// Numbers are exact, 64-bit ones too.  Bytes are base64, ids are written as Kafka does.  Strings
// are UTF-8, of which only what JSON demands is escaped; a byte that is no UTF-8 becomes U+FFFD.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "protocol/codec.h"

namespace tarry::protocol {

class Json {
 public:
  const std::string& text() const { return text_; }
  std::string take() { return std::move(text_); }

  void begin_object() { open('{'); }
  void end_object() { close('}'); }
  Json& key(std::string_view name);  // A name of ours: nothing in it needs escaping.

  template <typename T>
  requires std::is_integral_v<T>
  void value(T number) {
    separate();
    text_ += std::to_string(number);
  }
  void value(double number);  // With a fraction, also if that is 0.
  void value(bool truth) { word(truth ? "true" : "false"); }
  void value(ErrorCode code) { value(to_int16(code)); }
  void value(std::string_view text);
  void value(const std::string& text) { value(std::string_view(text)); }
  void value(Bytes bytes);
  void value(const Buffer& bytes) { value(Bytes(bytes)); }
  void value(const TopicId& id) { value(std::string_view(id.text())); }
  void value(const Records& records);
  template <typename T>
  void value(const std::optional<T>& optional) {
    optional ? value(*optional) : null();
  }
  void null() { word("null"); }

  template <typename T, typename PrintElement>
  void array(const std::vector<T>& elements, PrintElement&& print) {
    open('[');
    for (const T& element : elements) print(element);
    close(']');
  }
  template <typename T, typename PrintElement>
  void array(const std::optional<std::vector<T>>& elements, PrintElement&& print) {
    elements ? array(*elements, print) : null();
  }

 private:
  void separate() {
    if (comma_) text_ += ',';
    comma_ = true;
  }
  void open(char bracket) {
    separate();
    text_ += bracket;
    comma_ = false;
  }
  void close(char bracket) {
    text_ += bracket;
    comma_ = true;
  }
  void word(std::string_view word) {
    separate();
    text_ += word;
  }
  void base64(const std::vector<Bytes>& pieces);

  std::string text_;
  bool comma_ = false;  // Whether the next value has one before it.
};

}  // namespace tarry::protocol
