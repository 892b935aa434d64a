#!/usr/bin/env python3
"""Makes C++ from messages.schema, whose head explains the notation.

    generator.py SCHEMA OUT       writes OUT/NAME.h and OUT/NAME.cc per API, OUT/api_key.h,
                                  OUT/api_schemas.cc and OUT/dump.cc
    generator.py SCHEMA --list    prints the names of these files, for CMake

Of each message it makes a struct with the fields, their defaults, and

    void decode(Reader&, int version);          // Into a new object: what the version does not
    void encode(Writer&, int version) const;    // have, keeps its default.
    void print(Json&, int version) const;

A request's strings and bytes are views of the frame it came in; a response owns what it holds.
Only the standard library is used.
"""

import pathlib
import re
import sys
from dataclasses import dataclass, field

LAST = 1 << 30  # The upper end of a range that has none.

NUMBERS = {  # Type -> C++ type, bytes.
    "i8": ("std::int8_t", 1),
    "i16": ("std::int16_t", 2),
    "i32": ("std::int32_t", 4),
    "i64": ("std::int64_t", 8),
    "f64": ("double", 8),
}
KINDS = {*NUMBERS, "bool", "uuid", "str", "bytes", "records"}


# --- The schema ---


@dataclass(frozen=True)
class Range:
    low: int
    high: int

    def cut(self, other):
        return Range(max(self.low, other.low), min(self.high, other.high))

    def has(self, version):
        return self.low <= version <= self.high


ALL = Range(0, LAST)


@dataclass
class Field:
    name: str
    type: str  # A primitive, or "struct".
    is_array: bool
    fields: list  # A struct's fields.
    nullable: Range | None
    default: str | None
    tag: int | None
    versions: Range  # Within those of the API and of what it is part of.
    struct_name: str = ""  # Its C++ name; set by name_structs().


@dataclass
class Api:
    key: int
    name: str
    versions: Range
    flexible: int  # The first flexible version.
    messages: dict = field(default_factory=dict)  # "Request" and "Response" -> fields.


def parse_range(text):
    if match := re.fullmatch(r"(\d+)\+", text):
        return Range(int(match[1]), LAST)
    if match := re.fullmatch(r"(\d*)\.\.(\d+)", text):
        return Range(int(match[1] or 0), int(match[2]))
    if match := re.fullmatch(r"(\d+)-(\d+)", text):
        return Range(int(match[1]), int(match[2]))
    return Range(int(text), int(text))


class FieldParser:
    def __init__(self, text, where):
        self.text, self.where, self.at = text, where, 0

    def take(self, pattern):
        match = re.compile(r"\s*" + pattern).match(self.text, self.at)
        if match:
            self.at = match.end()
        return match

    def need(self, pattern):
        match = self.take(pattern)
        if not match:
            sys.exit(f"{self.where}: {pattern} expected at: {self.text[self.at:self.at + 40]!r}")
        return match

    def all(self):
        fields = self.fields(None)
        self.need(r"$")
        return fields

    def fields(self, closing):
        fields = []
        while not (closing and self.take(closing)):
            if not closing and self.take(r"$"):
                break
            if fields:
                self.need(",")
            fields.append(self.one())
        return fields

    def one(self):
        name = self.need(r"(\w+):")[1]
        is_array, inner = False, []
        if match := self.take(r"\[(\w+)\]"):
            is_array, kind = True, match[1]
        elif self.take(r"\["):
            is_array, kind, inner = True, "struct", self.fields(r"\]")
        elif self.take(r"\{"):
            kind, inner = "struct", self.fields(r"\}")
        else:
            kind = self.need(r"(\w+)")[1]
        nullable = self.take(r"\?(\d+\+)?")
        default = self.take(r"=(-?\w+)")
        tag = self.take(r"@(\d+)")
        own = self.take(r"\(([^)]*)\)")
        return Field(
            name,
            kind,
            is_array,
            inner,
            (parse_range(nullable[1]) if nullable[1] else ALL) if nullable else None,
            default[1] if default else None,
            int(tag[1]) if tag else None,
            parse_range(own[1]) if own else ALL,
        )


def settle(fields, around, api, where):
    """Cuts each field's versions to those of what is around it, and checks what can be wrong."""
    for f in fields:
        here = f"{where}.{f.name}"
        f.versions = f.versions.cut(around)
        if f.versions.low > f.versions.high:
            sys.exit(f"{here}: no version has it")
        if f.type != "struct" and f.type not in KINDS:
            sys.exit(f"{here}: there is no type {f.type}")
        if f.tag is not None and f.versions.low < api.flexible:
            sys.exit(f"{here}: tagged, but version {f.versions.low} is not flexible")
        if f.type == "records" and f.tag is not None:
            sys.exit(f"{here}: records cannot be tagged")
        settle(f.fields, f.versions, api, here)
    tags = [f.tag for f in fields if f.tag is not None]
    if len(tags) != len(set(tags)):
        sys.exit(f"{where}: two fields with one tag")


def parse_schema(text):
    apis = []
    section, texts = None, {}

    def close():
        for name, lines in texts.items():
            api, where = apis[-1], apis[-1].name + name
            api.messages[name] = FieldParser("\n".join(lines), where).all()
            settle(api.messages[name], api.versions, api, where)

    for line in text.splitlines():
        line = line.split("#")[0].rstrip()
        if match := re.fullmatch(r"(\d+) (\w+) (\S+) flexible (\S+)", line):
            close()
            texts = {"Request": [], "Response": []}
            versions = parse_range(match[3])
            for other in apis:
                if other.key == int(match[1]):
                    sys.exit(f"{match[2]}: key {other.key} is that of {other.name} already")
                if other.name == match[2]:
                    sys.exit(f"{other.name}: it stands twice, with keys {other.key} and {match[1]}")
            none = versions.high + 1
            flexible = none if match[4] == "none" else parse_range(match[4]).low
            apis.append(Api(int(match[1]), match[2], versions, flexible))
        elif line.strip() in ("request", "response"):
            section = texts[line.strip().capitalize()]
        elif line.strip():
            section.append(line)
    close()
    return sorted(apis, key=lambda api: api.key)


# --- Names ---


def snake(camel):
    return re.sub(r"(?<!^)(?=[A-Z])", "_", camel).lower()


def lower_camel(name):
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def singular_camel(name):
    camel = "".join(word.capitalize() for word in name.split("_"))
    if camel.endswith("ies"):
        return camel[:-3] + "y"
    return camel[:-1] if camel.endswith("s") and not camel.endswith("ss") else camel


def name_structs(fields, parent, taken):
    """Names every struct after its field; when that name is taken, after its parent too."""
    for f in fields:
        if f.type != "struct":
            continue
        name = singular_camel(f.name)
        f.struct_name = parent + name if name in taken else name
        taken.add(f.struct_name)
    for f in fields:
        name_structs(f.fields, f.struct_name, taken)


def structs_of(fields):
    """All structs in them, the inner ones first."""
    for f in fields:
        yield from structs_of(f.fields)
        if f.type == "struct":
            yield f


# --- C++ ---


class Struct:
    """Emits one struct: its members, and the three functions over them."""

    def __init__(self, api, owner, name, fields, versions):
        self.api, self.owner, self.name, self.fields, self.versions = (
            api, owner, name, fields, versions)
        self.is_request = owner.endswith("Request")

    # Types and defaults.

    def element_type(self, f):
        if f.type == "struct":
            return f.struct_name
        if f.type == "i16" and (f.name == "error_code" or f.name.endswith("_error_code")):
            return "ErrorCode"
        if f.type in NUMBERS:
            return NUMBERS[f.type][0]
        if f.type == "records" and not self.is_request:
            return "Records"
        return {
            "bool": "bool",
            "uuid": "TopicId",
            "str": "std::string_view" if self.is_request else "std::string",
            "bytes": "Bytes" if self.is_request else "Buffer",
            "records": "Bytes",
        }[f.type]

    def type(self, f):
        inner = self.element_type(f)
        if f.is_array:
            inner = f"std::vector<{inner}>"
        return f"std::optional<{inner}>" if f.nullable and inner != "Records" else inner

    def default(self, f):
        """Of a scalar, as C++; None where the type's own will do."""
        if f.is_array or f.nullable or f.type in ("struct", "uuid", "str", "bytes", "records"):
            return None
        if self.element_type(f) == "ErrorCode":
            return "ErrorCode::none"
        if f.type == "bool":
            return f.default or "false"
        if f.type == "i32" and f.default == "-2147483648":
            return "-2147483647 - 1"
        return f.default or "0"

    def member(self, f):
        default = self.default(f)
        note = []
        if f.versions != self.versions:
            note.append(range_text(f.versions, self.versions))
        if f.nullable and f.nullable.low > f.versions.low:
            note.append(f"null from {f.nullable.low} on")
        text = f"  {self.type(f)} {f.name}" + (f" = {default};" if default else ";")
        return text + (f"  // {'; '.join(note)}." if note else "")

    # Conditions.

    def condition(self, versions):
        """That `version` is in `versions`; None when it always is."""
        parts = []
        if versions.low > self.versions.low:
            parts.append(f"version >= {versions.low}")
        if versions.high < self.versions.high:
            parts.append(f"version <= {versions.high}")
        return " && ".join(parts) or None

    def flexible(self):
        if self.api.flexible <= self.versions.low:
            return "true"
        if self.api.flexible > self.versions.high:
            return "false"
        return f"version >= {self.api.flexible}"

    def by_nullability(self, f, nullable, other):
        """One statement for versions where the field may be null, another for the rest."""
        if not f.nullable:
            return [other]
        condition = self.condition(f.nullable.cut(f.versions)) if (
            f.nullable.low > f.versions.low) else None
        if not condition:
            return [nullable]
        return [f"if (version >= {f.nullable.low})", "  " + nullable, "else", "  " + other]

    # Fields.

    def minimum(self, f):
        """Bytes of one element at the least, in any version."""
        sizes = [self.size_in(f, v) for v in range(f.versions.low, f.versions.high + 1)]
        return max(1, min(sizes))

    def size_in(self, f, version, whole=False):
        compact = version >= self.api.flexible
        if f.is_array and whole:
            return 1 if compact else 4
        if f.type == "struct":
            if f.nullable and whole:
                return 1
            return compact + sum(
                self.size_in(g, version, True)
                for g in f.fields if g.versions.has(version) and g.tag is None)
        if f.type in NUMBERS:
            return NUMBERS[f.type][1]
        if f.type == "str":
            return 1 if compact else 2
        return {"bool": 1, "uuid": 16}.get(f.type) or (1 if compact else 4)

    def decode_field(self, f):
        return self.code_field(f, "reader", "decode", "")

    def encode_field(self, f):
        return self.code_field(f, "writer", "encode", "const ")

    def code_field(self, f, coder, verb, const):
        """The same calls read and write; but a reader makes what may be null, and is told how few
        bytes an element of an array can take."""
        reads = coder == "reader"
        into = f"{f.name}.emplace()" if reads and f.nullable else f.name
        if f.is_array:
            element = {
                "struct": f"it.{verb}({coder}, version)",
                "str": f"{coder}.string(flexible, it)",
                "uuid": f"{coder}.uuid(it)",
            }.get(f.type, f"{coder}.number(it)")
            each = f"[&]({const}{self.element_type(f)}& it) {{ {element}; }}"
            size = f"{self.minimum(f)}, " if reads else ""
            return self.by_nullability(
                f,
                f"{coder}.nullable_array(flexible, {size}{f.name}, {each});",
                f"{coder}.array(flexible, {size}{into}, {each});")
        if f.type == "struct":
            if not f.nullable:
                return [f"{f.name}.{verb}({coder}, version);"]
            each = f"[&]({const}{f.struct_name}& it) {{ it.{verb}({coder}, version); }}"
            return [f"{coder}.nullable_struct({f.name}, {each});"]
        if f.type == "records" and not self.is_request:
            return [f"{coder}.nullable_records(flexible, {f.name});"]
        if f.type in ("str", "bytes", "records"):
            call = "string" if f.type == "str" else "bytes"
            return self.by_nullability(
                f,
                f"{coder}.nullable_{call}(flexible, {f.name});",
                f"{coder}.{call}(flexible, {into});")
        call = {"bool": "boolean", "uuid": "uuid"}.get(f.type, "number")
        return [f"{coder}.{call}({f.name});"]

    def print_field(self, f):
        key = f'json.key("{lower_camel(f.name)}")'
        if f.is_array:
            element = "it.print(json, version)" if f.type == "struct" else "json.value(it)"
            each = f"[&](const {self.element_type(f)}& it) {{ {element}; }}"
            return [f"{key}.array({f.name}, {each});"]
        if f.type == "struct" and f.nullable:
            return [f"{key};", f"if ({f.name})", f"  {f.name}->print(json, version);", "else",
                    "  json.null();"]
        if f.type == "struct":
            return [f"{key};", f"{f.name}.print(json, version);"]
        return [f"{key}.value({f.name});"]

    def not_default(self, f):
        """That a tagged field has to be written."""
        if f.nullable:
            return f"{f.name}.has_value()"
        if f.is_array or f.type in ("str", "bytes"):
            return f"!{f.name}.empty()"
        if f.type == "struct":
            return f"{f.name} != {f.struct_name}{{}}"
        if f.type == "uuid":
            return f"!{f.name}.is_zero()"
        return f"{f.name} != {self.default(f)}"

    # Functions.

    def guarded(self, f, lines, extra=None):
        """`lines` for the versions that have the field, and when `extra` holds."""
        conditions = [c for c in (self.condition(f.versions), extra) if c]
        if not conditions:
            return lines
        condition = " && ".join(conditions)
        if len(lines) == 1:
            return [f"if ({condition})", "  " + lines[0]]
        return [f"if ({condition}) {{", *("  " + line for line in lines), "}"]

    def tagged(self):
        return sorted((f for f in self.fields if f.tag is not None), key=lambda f: f.tag)

    def if_flexible(self, lines):
        flexible = self.flexible()
        if flexible == "false":
            return []
        if flexible == "true":
            return lines
        if len(lines) == 1:
            return ["if (flexible)", "  " + lines[0]]
        return ["if (flexible) {", *("  " + line for line in lines), "}"]

    def decode(self):
        lines = []
        for f in self.fields:
            if f.tag is None:
                lines += self.guarded(f, self.decode_field(f))
        tags = []
        for f in self.tagged():
            conditions = filter(None, [f"tag == {f.tag}", self.condition(f.versions)])
            tags += [f"if ({' && '.join(conditions)}) {{",
                     *("  " + line for line in self.decode_field(f)), "  return true;", "}"]
        if tags:
            lines += self.if_flexible(
                ["reader.tagged_fields([&](std::uint32_t tag) {", *("  " + t for t in tags),
                 "  return false;", "});"])
        else:
            lines += self.if_flexible(["reader.skip_tagged_fields();"])
        return self.function("decode", "Reader& reader", "", lines)

    def encode(self):
        lines = []
        for f in self.fields:
            if f.tag is None:
                lines += self.guarded(f, self.encode_field(f))
        tags = self.tagged()
        end = []
        for f in tags:
            conditions = filter(None, [self.condition(f.versions), self.not_default(f)])
            end.append(f"const bool has_{f.name} = {' && '.join(conditions)};")
        count = " + ".join(f"unsigned{{has_{f.name}}}" for f in tags)
        end.append(f"writer.uvarint({count or 0});")
        for f in tags:
            inside = " ".join(self.encode_field(f))
            end.append(f"if (has_{f.name}) writer.tagged_field({f.tag}, [&] {{ {inside} }});")
        lines += self.if_flexible(end)
        if self.name == self.owner:
            why = "only what the schema has can be encoded"
            lines.insert(0, f'TARRY_ASSERT(has_version(version), "{why}");')
        return self.function("encode", "Writer& writer", " const", lines)

    def print(self):
        lines = ["json.begin_object();"]
        for f in self.fields:
            unless_default = self.not_default(f) if f.tag is not None else None
            lines += self.guarded(f, self.print_field(f), unless_default)
        lines.append("json.end_object();")
        return self.function("print", "Json& json", " const", lines)

    def function(self, name, first, const, lines):
        body = "\n".join("  " + line for line in lines)
        path = self.owner if self.name == self.owner else f"{self.owner}::{self.name}"
        if re.search(r"\bflexible\b", body):
            qualifier = "constexpr" if self.flexible() in ("true", "false") else "const"
            body = f"  {qualifier} bool flexible = {self.flexible()};\n{body}"
        version = "int version" if re.search(r"\bversion\b", body) else "int"
        if not re.search(rf"\b{first.split()[-1]}\b", body):
            first = first.split()[0]
        return f"void {path}::{name}({first}, {version}){const} {{\n{body}\n}}\n".replace(
            "{\n\n}", "{}")


def range_text(versions, around):
    if versions.low == versions.high:
        return f"Version {versions.low} alone"
    if versions.high >= around.high:
        return f"From version {versions.low} on"
    if versions.low <= around.low:
        return f"Up to version {versions.high}"
    return f"Versions {versions.low} to {versions.high}"


def comparable(fields):
    return all(
        f.type not in ("bytes", "records") and (f.type != "struct" or comparable(f.fields))
        for f in fields)


def declare_struct(struct, indent):
    lines = [f"struct {struct.name} {{"]
    lines += [struct.member(f) for f in struct.fields]
    lines += ["", "  void decode(Reader& reader, int version);",
              "  void encode(Writer& writer, int version) const;",
              "  void print(Json& json, int version) const;"]
    if comparable(struct.fields):
        lines.append(f"  bool operator==(const {struct.name}&) const = default;")
    lines.append("};")
    return "\n".join((indent + line).rstrip() for line in lines)


def make_api(api):
    """The header and the source of one API."""
    header = [
        "#pragma once", "",
        f"// {api.name}, key {api.key}, versions {api.versions.low} to {api.versions.high}.  "
        "Made by generator.py from messages.schema.", "",
        "#include <cstdint>", "#include <optional>", "#include <string>", "#include <string_view>",
        "#include <vector>", "", '#include "protocol/codec.h"',
        '#include "protocol/messages/api_key.h"', "",
        "namespace tarry::protocol {", "", "class Json;", "",
    ]
    source = [
        f'#include "protocol/messages/{snake(api.name)}.h"', "", '#include "protocol/json.h"', "",
        "namespace tarry::protocol {", "",
    ]
    for direction, fields in api.messages.items():
        name = api.name + direction
        name_structs(fields, "", {name})
        nested = [
            Struct(api, name, f.struct_name, f.fields, f.versions) for f in structs_of(fields)]
        top = Struct(api, name, name, fields, api.versions)
        header.append(f"struct {name} {{")
        header += [
            f"  static constexpr auto api = protocol::ApiKey::{snake(api.name)};",
            f'  static constexpr const char* name = "{name}";',
            f"  static constexpr bool has_version(int version) {{",
            f"    return version >= {api.versions.low} && version <= {api.versions.high};",
            "  }", ""]
        for struct in nested:
            header += [declare_struct(struct, "  "), ""]
        header += [top.member(f) for f in fields]
        header += [*([""] if fields else []), "  void decode(Reader& reader, int version);",
                   "  void encode(Writer& writer, int version) const;",
                   "  void print(Json& json, int version) const;", "};", ""]
        for struct in [*nested, top]:
            source += [struct.decode(), struct.encode(), struct.print()]
    header.append("}  // namespace tarry::protocol")
    source.append("}  // namespace tarry::protocol")
    return "\n".join(header) + "\n", "\n".join(source) + "\n"


def make_api_key(apis):
    keys = "".join(f"  {snake(api.name)} = {api.key},\n" for api in apis)
    return f"""#pragma once

// Made by generator.py from messages.schema.

#include <cstdint>

namespace tarry::protocol {{

enum class ApiKey : std::int16_t {{
{keys}}};

}}  // namespace tarry::protocol
"""


def make_api_schemas(apis):
    rows = "".join(
        f'      {{ApiKey::{snake(api.name)}, "{api.name}", '
        f"{api.versions.low}, {api.versions.high}, {api.flexible}}},\n" for api in apis)
    return f"""#include "protocol/api.h"

namespace tarry::protocol {{

std::span<const ApiSchema> api_schemas() {{
  static constexpr ApiSchema all[] = {{
{rows}  }};
  return all;
}}

}}  // namespace tarry::protocol
"""


def make_dump(apis):
    includes = "".join(
        f'#include "protocol/messages/{name}.h"\n'
        for name in sorted(snake(api.name) for api in apis))
    cases = "".join(
        f"    case {api.key}:\n      return request ? dump<{api.name}Request>(version, body)\n"
        f"                     : dump<{api.name}Response>(version, body);\n" for api in apis)
    return f"""#include "protocol/dump.h"

#include <string>

#include "protocol/codec.h"
#include "protocol/json.h"
{includes}
namespace tarry::protocol {{
namespace {{

template <typename M>
Result<Dumped> dump(int version, Bytes body) {{
  M message;
  if (auto decoded = decode_into(message, body, version); !decoded)
    return std::unexpected(std::move(decoded.error()));
  Json json;
  message.print(json, version);
  Writer writer(body.size() + 16);
  message.encode(writer, version);
  return Dumped{{json.take(), writer.flatten()}};
}}

}}  // namespace

Result<Dumped> dump_message(int key, bool request, int version, Bytes body) {{
  switch (key) {{
{cases}    default:
      return fail(Errc::unsupported, "no API has key " + std::to_string(key));
  }}
}}

}}  // namespace tarry::protocol
"""


def main():
    schema, out = pathlib.Path(sys.argv[1]), sys.argv[2]
    apis = parse_schema(schema.read_text())
    if out == "--list":
        names = [f"{snake(api.name)}.{end}" for api in apis for end in ("h", "cc")]
        print(";".join(["api_key.h", "api_schemas.cc", "dump.cc", *names]), end="")
        return
    files = {
        "api_key.h": make_api_key(apis),
        "api_schemas.cc": make_api_schemas(apis),
        "dump.cc": make_dump(apis),
    }
    for api in apis:
        files[snake(api.name) + ".h"], files[snake(api.name) + ".cc"] = make_api(api)
    folder = pathlib.Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        # A file that would be the same stays untouched, so that nobody compiles it again.
        if not (folder / name).exists() or (folder / name).read_text() != text:
            (folder / name).write_text(text)


if __name__ == "__main__":
    main()
