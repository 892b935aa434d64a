// A strip of a level's buckets: those in use are filled, the one that now is in is marked.
//
//     [. . . . | # . # # . . . . . . # . .]   256 to a row; a level of the wheel begins with its round,
//            now                              one of buckets in memory or on disk begins with now

import { el, svg } from "./dom.js";
import { duration, integer, nearTime } from "./format.js";

export const inRow = 256;
const rowHeight = 5;

// The places of the slots in use of {from_ms, bits, later}, as docs/http.md describes it.
export function placesOf({ bits }) {
  const places = [];
  [...bits].forEach((digit, at) => {
    const value = parseInt(digit, 16);
    for (let bit = 0; bit < 4; ++bit) if (value & (8 >> bit)) places.push(at * 4 + bit);
  });
  return places;
}

// `level`: {slots, span_ms, colour}; `now` is the broker's.
export function strip({ slots, span_ms, colour }, now) {
  if (!slots) return "–";
  const places = placesOf(slots);
  const rows = Math.ceil(Math.max(1, (places.at(-1) ?? 0) + 1) / inRow);
  const height = rows * rowHeight;
  const rect = (name, from, width, row, style) => svg("rect", { class: name, x: from, y: row * rowHeight, width, height: rowHeight - 1, style });
  const parts = [];
  for (let row = 0; row < rows; ++row) parts.push(rect("slots-row", 0, inRow, row));
  // One rectangle for neighbours.
  for (let i = 0; i < places.length;) {
    const first = places[i];
    let end = first + 1;
    for (++i; i < places.length && places[i] === end && end % inRow !== 0; ++i) ++end;
    parts.push(rect("slots-used", first % inRow, end - first, Math.floor(first / inRow), { fill: `var(${colour})` }));
  }
  const place = Math.floor((now - slots.from_ms) / span_ms);
  if (place >= 0 && place < inRow * rows) parts.push(rect("slots-now", place % inRow, 1, Math.floor(place / inRow)));
  const time = (at) => nearTime(slots.from_ms + at * span_ms, now);
  const words = places.length === 0 ? "none in use" : `${integer(places.length)} in use${places.length > 1 ? `, from ${time(places[0])} to ${time(places.at(-1))}` : `: ${time(places[0])}`}`;
  const text = `${words}${slots.later ? "; others later" : ""}`;
  return el("span", { class: "slots", role: "img", "aria-label": text, title: `${text}. A slot is ${span_ms >= 1000 ? duration(span_ms) : `${span_ms} ms`}.`, data: { slots: places.length } },
    svg("svg", { viewBox: `0 0 ${inRow} ${height}`, height, preserveAspectRatio: "none", "aria-hidden": "true" }, parts),
    slots.later ? el("span", { class: "slots-later", "aria-hidden": "true" }, "…") : null);
}
