// A record's value: bytes from base64, shown as JSON, text or hexadecimal digits.

import { visible } from "./dom.js";

// More than this is not put into the page: a browser takes seconds to lay out a megabyte of text.
export const shown_bytes = 64 * 1024;

export function fromBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; ++i) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

// The text, or null if the bytes are not UTF-8.
export function asText(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}

// The same text with line breaks and indentation.  It is not printed from the parsed value: numbers beyond
// 2^53, repeated names and the order of names would be lost.
export function indentJson(text) {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  let result = "";
  let depth = 0;
  const pieces = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  pieces.forEach((piece, place) => {
    const next = pieces[place + 1];
    if (piece === "{" || piece === "[") {
      const empty = next === "}" || next === "]";
      if (!empty) ++depth;
      result += piece + (empty ? "" : line(depth));
    } else if (piece === "}" || piece === "]") {
      const before = pieces[place - 1];
      const empty = before === "{" || before === "[";
      if (!empty) --depth;
      result += (empty ? "" : line(depth)) + piece;
    } else if (piece === ",") result += `,${line(depth)}`;
    else if (piece === ":") result += ": ";
    else result += piece;
  });
  return result;
}

const line = (depth) => `\n${"  ".repeat(depth)}`;

// Sixteen bytes a line: place, digits, and what is printable.
export function hexDump(bytes) {
  const lines = [];
  for (let start = 0; start < bytes.length; start += 16) {
    const row = [...bytes.subarray(start, start + 16)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0"));
    const letters = row.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "·"));
    lines.push(`${start.toString(16).padStart(6, "0")}  ${digits.slice(0, 8).join(" ").padEnd(23)}  ${digits.slice(8).join(" ").padEnd(23)}  ${letters.join("")}`);
  }
  return lines.join("\n");
}

// The ways in which it can be shown: [{name, text}], the best first.
export function representations(bytes) {
  const cut = bytes.subarray(0, shown_bytes);
  // A cut in the middle of a character is no reason to call it binary.
  let text = asText(bytes.length > cut.length ? wholeCharacters(cut) : cut);
  const found = [];
  if (text !== null && !/[\u0000-\u0008\u000e-\u001a]/.test(text)) {
    const json = bytes.length <= shown_bytes && /^\s*[[{]/.test(text) ? indentJson(text) : null;
    if (json !== null) found.push({ name: "JSON", text: json });
    found.push({ name: "Text", text });
  } else {
    text = null;
  }
  found.push({ name: "Hex", text: hexDump(cut.subarray(0, shown_bytes / 4)), hex: true });
  for (const each of found) if (!each.hex) each.text = keepLines(each.text);
  return found;
}

// An indentation is seen without a sign for each space.
const keepIndent = (piece) => {
  const indent = /^ */.exec(piece)[0];
  return indent.length < piece.length ? indent + visible(piece.slice(indent.length)) : visible(piece);
};
const keepLines = (text) => text.split(/\r?\n/).map((row) => row.split("\t").map(keepIndent).join("\t")).join("\n");

function wholeCharacters(bytes) {
  let end = bytes.length;
  for (let back = 1; back <= 4; ++back) {
    const byte = bytes[bytes.length - back];
    if (byte < 0x80) break;
    if (byte >= 0xc0) {
      end = bytes.length - back;
      break;
    }
  }
  return bytes.subarray(0, end);
}
