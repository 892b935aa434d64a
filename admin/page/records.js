// A list of pending records: a row for each, which opens it.  One row is in the order of the Tab key; the
// arrow keys move from row to row.

import { el, reconcile, orNone, setText, visible, $$ } from "./dom.js";
import { bytes, fullTime, isoTime, nearTime, until, zoneAt } from "./format.js";
import { live } from "./live.js";

const fresh_ms = 4000;

export class RecordList {
  constructor({ label, onOpen }) {
    this.onOpen = onOpen;
    this.records = [];
    this.needle = "";
    this.gone = new Set();  // Handles that are listed although their records are no longer pending.
    this.body = el("div", { class: "rows", role: "rowgroup" });
    this.node = el("div", { class: "records", role: "table", "aria-label": label },
      el("div", { class: "records-head", role: "rowgroup" }, el("div", { class: "row head", role: "row" },
        ["Due", "Topic", "Id", "Key", "Size", "Handle"].map((name) =>
          el("span", { role: "columnheader", class: `cell ${name.toLowerCase()}` }, name)))),
      this.body);
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("[data-handle]");
      // Somebody who selects text to copy it does not want the row.
      if (row && !String(window.getSelection())) this.open(row);
    });
    this.body.addEventListener("keydown", (event) => this.#key(event));
    live.addEventListener("tick", () => this.tick());
  }

  update(records, needle = "") {
    this.records = records;
    this.needle = needle.toLowerCase();
    if (this.gone.size) {
      const listed = new Set(records.map(({ handle }) => handle));
      for (const handle of this.gone) if (!listed.has(handle)) this.gone.delete(handle);
    }
    reconcile(this.body, records, (record) => record.handle, (record) => this.#make(record), (row, record) => this.#write(row, record));
    if (!this.body.querySelector('[tabindex="0"]')) this.body.firstElementChild?.setAttribute("tabindex", 0);
    this.node.classList.toggle("empty", records.length === 0);
  }

  tick() {
    if (!this.node.isConnected || this.node.offsetParent === null) return;
    const now = live.now();
    for (const row of this.body.children) this.#writeDue(row, now);
  }

  // Those of the rows that are seen.
  onScreen() {
    const seen = (row) => {
      const { top, bottom } = row.getBoundingClientRect();
      return bottom > 0 && top < window.innerHeight;
    };
    return [...this.body.children].filter(seen).map(({ record }) => record);
  }

  // It is no longer pending, but its place in the list is kept.
  markGone(handle) {
    this.gone.add(handle);
    for (const row of this.body.children) if (row.dataset.handle === handle) this.#writeDue(row, live.now());
  }

  mark(handle) {
    for (const row of this.body.children) {
      if (row.dataset.handle === handle) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
  }

  open(row) {
    this.#focusable(row);
    this.onOpen(row.record, row);
  }

  focusFirst() {
    const row = this.body.firstElementChild;
    if (row) this.#focus(row);
  }

  #make(record) {
    const cell = (name, ...children) => el("span", { role: "cell", class: `cell ${name}` }, ...children);
    return el("div", { class: "row", role: "row", tabindex: -1, data: { handle: record.handle } },
      cell("due", el("span", { class: "relative" }), el("time")), cell("topic"), cell("id"), cell("key"), cell("size"), cell("handle"));
  }

  #write(row, record) {
    // The list is written every two seconds, and most rows have not changed.
    const version = `${record.due_ms} ${this.needle} ${record.topic} ${record.id} ${record.recurrence?.text}`;
    row.record = record;
    if (row.version !== version) {
      row.version = version;
      const [due, topic, id, key, size, handle] = row.children;
      const time = due.lastChild;
      time.dateTime = isoTime(record.due_ms);
      time.title = `${fullTime(record.due_ms)} ${zoneAt(record.due_ms)}`;
      topic.replaceChildren(...this.#marked(record.topic), el("small", { title: `partition ${record.partition}` }, `/${record.partition}`));
      id.replaceChildren(...(record.id === null ? [orNone(null)] : this.#marked(record.id)));
      // After the id, which a long rule would push out of the cell.
      if (record.recurring) id.append(" ", el("span", { class: "badge", title: `It recurs: ${visible(record.recurrence?.text ?? "")}` }, visible(record.recurrence?.text ?? "recurring")));
      key.replaceChildren(...(record.key === null || record.key === "" ? [orNone(record.key)] : this.#marked(record.key_base64 ? `${record.key} (base64)` : record.key)));
      setText(size, record.value_bytes === null ? "null" : bytes(record.value_bytes));
      setText(handle, record.handle);
      topic.title = record.topic;
      if (record.id !== null) id.title = visible(record.id);
      if (record.key !== null) key.title = visible(record.key);
    }
    this.#writeDue(row, live.now());
  }

  #writeDue(row, now) {
    // The list is a few seconds old: a record that has come due since is not late yet.
    let left = row.record.due_ms - now;
    if (left < 0 && (left > -fresh_ms || !live.status?.delayed.overdue)) left = 0;
    const [relative, time] = row.firstChild.children;
    const isGone = this.gone.has(row.record.handle);
    setText(relative, isGone ? "no longer pending" : until(left));
    setText(time, nearTime(row.record.due_ms, now));
    row.classList.toggle("gone", isGone);
    row.classList.toggle("overdue", !isGone && left <= -1000);
    row.classList.toggle("soon", !isGone && left > -1000 && left < 10_000);
  }

  // The text with what was searched for marked in it.
  #marked(text) {
    const shown = visible(text);
    const at = this.needle ? shown.toLowerCase().indexOf(this.needle) : -1;
    if (at < 0) return [shown];
    const end = at + this.needle.length;
    return [shown.slice(0, at), el("mark", {}, shown.slice(at, end)), shown.slice(end)];
  }

  #key(event) {
    const row = event.target.closest("[data-handle]");
    if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
    const rows = $$("[data-handle]", this.body);
    const place = rows.indexOf(row);
    const to = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: rows.length - 1, PageDown: place + 10, PageUp: place - 10 }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      this.#focus(rows[Math.max(0, Math.min(rows.length - 1, to))]);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.open(row);
    }
  }

  #focusable(row) {
    for (const each of $$('[tabindex="0"]', this.body)) each.setAttribute("tabindex", -1);
    row.setAttribute("tabindex", 0);
  }

  #focus(row) {
    this.#focusable(row);
    row.focus();
    row.scrollIntoView({ block: "nearest" });
  }
}
