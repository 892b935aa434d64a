// Parts that several views share.

import { get } from "./api.js";
import { shownLength, showLength } from "./charts.js";
import { el, setText, setAttribute, visible } from "./dom.js";
import { nearTime } from "./format.js";
import { live } from "./live.js";

// A row of figures: figures.set(name, text, state).
export class Figures {
  constructor(entries) {
    this.values = new Map();
    this.node = el("dl", { class: "figure-row" }, entries.map(([name, text, hint]) => {
      const value = el("dd", { data: { figure: name } }, "–");
      this.values.set(name, value);
      return el("div", { title: hint }, el("dt", {}, text), value);
    }));
  }

  set(name, text, state = "") {
    const node = this.values.get(name);
    setText(node, text);
    setAttribute(node, "class", state);
  }
}

export function card(title, content, { note = null, wide = false, extra = null } = {}) {
  return el("article", { class: `card${wide ? " wide" : ""}` }, el("header", { class: "card-head" }, el("h2", {}, title), note, extra), content);
}

// The one with the fewest free bytes: no records are accepted when any has less than the reserve.
export const tightest = ({ file_systems }) => file_systems.reduce((least, each) => (least && least.free_bytes <= each.free_bytes ? least : each), null);

// Soon no records are accepted, or it is so already.
export const isDiskShort = ({ state, storage }) =>
  state === "disk full" || storage.file_systems.some(({ free_bytes: free }) => free < 2 * (storage.reserve_bytes ?? 0));

// The state of a partition of /topics/NAME, and why its records stay overdue (null: it is well).  The answer has opened the
// first partitions, so one of them that is not open cannot be opened.
const opened_partitions = 1000;
export function stateOf({ partition, open, fenced, reason }) {
  if (fenced) return { text: "out of service", why: `is out of service until a restart${reason ? `: ${visible(reason)}` : "; the broker's log says why"}` };
  if (open) return { text: "open", why: null };
  if (partition < opened_partitions) return { text: "failed", why: `cannot be opened${reason ? `: ${visible(reason)}` : "; the broker's log says why"}` };
  return { text: "not opened", why: null };
}

// A partition of the answer about a topic, with the reason that the broker's status has where it cannot be opened.
export const withReason = (topic, each) => (each.open ? each
  : { ...each, reason: live.status?.out_of_service?.find((other) => other.topic === topic && other.partition === each.partition)?.reason });

// Why overdue records stay, as a function of the partition of a topic: the end of a sentence about it, or null: it is well.  Null: it is not known.
export async function whysOverdue(topic, signal) {
  try {
    const { partitions } = await get(`/topics/${encodeURIComponent(topic)}`, { signal });
    const known = new Map(partitions.map((each) => [each.partition, each]));
    // The reason is in a status that may come after this answer.
    return (partition) => (known.has(partition) ? stateOf(withReason(topic, known.get(partition))).why : null);
  } catch {
    return null;
  }
}

// When the broker started, to the second; its two clocks differ by milliseconds.
let started = null;
export function sinceStart({ at_ms: at, uptime_ms: uptime }) {
  if (started === null || Math.abs(at - uptime - started) > 2000) started = at - uptime;
  return `since the start at ${nearTime(started, at)}`;
}

// The sender of a batch that was refused.
export const senderOf = ({ client, principal, address }) => (address ? `${visible(client || "(no client id)")}, ${visible(principal)}, ${visible(address)}` : "not known");

// Buttons for the length of time that all charts over time show at most.
export function lengthChoice(draw) {
  const buttons = [["10 minutes", 600_000], ["1 hour", 3_600_000]].map(([text, ms]) => el("button", { type: "button", data: { length: ms }, on: { click: () => {
    showLength(ms);
    draw();
  } } }, text));
  return {
    node: el("div", { class: "bar lengths" }, el("div", { class: "segmented", role: "group", "aria-label": "Length of time of the charts" }, buttons)),
    // It may have been chosen in another view.
    update: () => buttons.forEach((button) => setAttribute(button, "aria-pressed", String(Number(button.dataset.length) === shownLength()))),
  };
}

// A part of a whole, as a bar behind a number.
export function meter(value, whole, text, colour = "--accent") {
  const part = whole > 0 ? Math.min(1, value / whole) : 0;
  return el("span", { class: "meter" },
    el("span", { class: "meter-bar", "aria-hidden": "true" }, el("span", { style: { width: `${part > 0 ? Math.max(1.5, part * 100).toFixed(1) : 0}%`, background: `var(${colour})` } })),
    el("span", { class: "meter-text" }, text));
}

// Asks again and again while a view is looked at; the next request begins when the last has been answered.
export class Poll {
  #timer = null;
  #abort = null;

  constructor(ask, pause_ms) {
    this.ask = ask;
    this.pause_ms = pause_ms;
  }

  start() {
    this.stop();
    this.#abort = new AbortController();
    this.#turn(this.#abort);
  }

  stop() {
    clearTimeout(this.#timer);
    this.#abort?.abort();
    this.#abort = null;
  }

  async #turn(abort) {
    if (!document.hidden) {
      try {
        await this.ask(abort.signal);
      } catch {
        // The head of the page tells that the connection is lost; the next turn asks again.
      }
    }
    if (!abort.signal.aborted) this.#timer = setTimeout(() => this.#turn(abort), this.pause_ms);
  }
}

// When the panel of VIEW/NAME is closed the name leaves the address, unless the panel gave way to another one.
export function leaveAddress(view, name) {
  const [at, named = ""] = location.hash.slice(1).split("?")[0].split("/");
  let text = named;
  try {
    text = decodeURIComponent(named);
  } catch {
    // Then it is compared as it is.
  }
  if (at === view && text === name) history.replaceState(null, "", `#${view}`);
}

// Rows that open: by a click, Enter or Space.
export const opening = (open) => (row) => {
  if (row.dataset.opens) return;
  row.dataset.opens = "";
  row.tabIndex = 0;
  row.addEventListener("click", () => !String(window.getSelection()) && open(row.item));
  row.addEventListener("keydown", (event) => {
    if (event.target !== row) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      open(row.item);
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      (event.key === "ArrowDown" ? row.nextElementSibling : row.previousElementSibling)?.focus();
    }
  });
};
