// One pending record: what it is, what happened to it, and what can be done with it.

import { el, orNone, setText, visible, $ } from "./dom.js";
import { change, get, query, recordPath } from "./api.js";
import { Confirmation, clearError, errorText, showError } from "./confirmation.js";
import { bytes, duration, fullTime, integer, isOverdue, isoTime, milliseconds, parseDuration, parseTime, plural, until, zone, zoneAt } from "./format.js";
import { live, stuck_ms, whyLate } from "./live.js";
import * as panel from "./panel.js";
import { whysOverdue } from "./parts.js";
import { fromBase64, representations, shown_bytes } from "./value.js";

// So often an open record is looked for, because others may change it.
const changed_elsewhere_ms = 3000;

// Its address in a view: VIEW/TOPIC/HANDLE/ID.  The handle ends with the record; the id leads to its history afterwards.
export const recordHash = (view, { topic, handle, id }) =>
  `#${view}/${[topic, handle ?? id, ...(handle && id ? [id] : [])].map((part) => encodeURIComponent(part).replaceAll("%40", "@")).join("/")}`;

// The record that such an address names; null: it names none.
export function recordOf([topic, name, id]) {
  if (!topic || !name) return null;
  return name.startsWith("@") ? { topic, handle: name, id: id || null } : { topic, handle: null, id: name };
}

export const sameRecord = (one, other) => one?.topic === other?.topic && (one?.handle ?? one?.id) === (other?.handle ?? other?.id);

// Opens it; a record that is known from a list is shown at once and then completed.
export async function openRecord({ topic, handle, id = null }, { known = null, onChange = () => {}, onClose = () => {} } = {}) {
  const view = new RecordView({ topic, handle, id }, known, onChange);
  panel.open({ name: "record", title: "Pending record", content: view.node, closed: () => { view.close(); onClose(); } });
  await view.load();
}

class RecordView {
  #abort = new AbortController();
  #record = null;
  #gone = false;
  #asked = Date.now();
  #isLooking = false;
  #partitionWhy = null;  // The promise of what is wrong with the partitions of its topic.

  constructor(name, known, onChange) {
    this.name = name;
    this.#record = known;
    this.onChange = onChange;
    this.due = el("div", { class: "due-field", data: { field: "due" } });
    this.relative = el("p", { class: "due-relative", "aria-live": "off" });
    this.facts = el("dl", { class: "facts" });
    // A list knows all but the value; where nothing is known, nothing is shown.
    this.headers = el("div", { data: { field: "headers" }, class: "headers" });
    this.value = el("div", { class: "value-holder" });
    this.history = el("ol", { class: "history", data: { field: "history" } });
    this.outcome = el("p", { class: "outcome", role: "status" });
    this.command = el("p", { class: "command", hidden: true });
    this.actions = el("div", { class: "actions" }, [
      ["move", "Move…", "Give it another due time"], ["deliver", "Deliver now…", "Deliver it now"], ["cancel", "Cancel…", "It will never be delivered"],
    ].map(([action, text, hint]) => el("button", { type: "button", title: hint, class: action === "cancel" ? "quiet-danger" : "", data: { action }, on: { click: () => this.#ask(action) } }, text)));
    this.asking = el("div", { class: "asking" });
    this.problem = el("div");
    this.why = el("p", { class: "trouble-line", hidden: true });
    this.node = el("div", { class: "record" },
      this.relative, this.due, this.why, this.outcome, this.command, this.problem, this.actions, this.asking, this.facts,
      this.valueSection = section("Value", this.value), this.headersSection = section("Headers", this.headers), section("History", this.history));
    this.valueSection.hidden = this.headersSection.hidden = true;
    this.node.hidden = !known;
    if (known) this.#show();
    this.tick = () => this.#tick();
    live.addEventListener("tick", this.tick);
    // Another run may know less of it, or more.
    this.restart = () => {
      this.#partitionWhy = null;
      if (!this.#gone) this.load();
    };
    live.addEventListener("restart", this.restart);
  }

  close() {
    this.#abort.abort();
    live.removeEventListener("tick", this.tick);
    live.removeEventListener("restart", this.restart);
  }

  get path() {
    return recordPath(this.name);
  }

  async load() {
    const options = { signal: this.#abort.signal };
    try {
      this.#record = await get(this.path, options);
      this.#gone = false;
      this.#show();
    } catch (error) {
      if (error.name === "AbortError") return;
      this.node.hidden = false;
      if (error.status === 404) await this.#becamePast();
      else showError(this.problem, errorText(error));
      return;
    }
    await this.#loadHistory();
  }

  // Returns the events.
  async #loadHistory() {
    // An id outlives its record, a handle does not.
    const id = this.#record ? this.#record.id : this.name.id;
    if (this.#gone && !id) {
      this.history.replaceChildren(el("li", { class: "none" }, this.#record
        ? "The broker keeps no history of a record without an id."
        : "The broker keeps the history of an id, and this address has none: search for the id of the record."));
      return [];
    }
    const path = id ? recordPath({ topic: this.name.topic, handle: id }) : this.path;
    let events = [];
    try {
      ({ events } = await get(`${path}/trace${this.#record ? `?partition=${this.#record.partition}` : ""}`, { signal: this.#abort.signal }));
    } catch (error) {
      if (error.name === "AbortError") return [];
    }
    this.history.replaceChildren(...(events.length ? historyItems(events) : [el("li", { class: "none" }, "No events are kept.")]));
    return events;
  }

  // It is not pending, and perhaps nothing is known of it but its name: its id tells what became of it.
  async #becamePast() {
    const events = await this.#became("It is no longer pending.");
    const last = events.at(-1);
    if (!last) {
      // Of a record that was shown before it is known that it was pending.
      if (this.#record) return;
      setText(this.relative, "Not pending");
      setText(this.outcome, "No record is pending under this address, and the broker knows nothing of one: the address may be wrong, or it is long gone.");
      return;
    }
    setText(this.outcome, endings.has(last.event)
      ? `It was ${last.event}: ${fullTime(last.at_ms)}${last.offset === null ? "" : `, at offset ${integer(last.offset)} of partition ${last.partition}`}.`
      : "It is no longer pending, but another record with its id is.");
    if (endings.has(last.event)) setText(this.relative, `${pastOf(last.event)}; it was due`);
    if (last.event === "delivered" && last.offset !== null) this.#sayHowToRead(last.partition, last.offset);
    if (this.#record) return;
    const fact = (name, text, field) => [el("dt", {}, name), el("dd", { data: { field } }, el("code", {}, visible(text)))];
    this.facts.replaceChildren(...fact("Topic", this.name.topic, "topic"), ...fact("Partition", String(last.partition), "partition"), ...fact("Id", this.name.id, "id"),
      ...(this.name.handle ? fact("Handle", this.name.handle, "handle") : []));
    setText(this.relative, `${endings.has(last.event) ? pastOf(last.event) : "No longer pending"}; it was due`);
    this.due.replaceChildren(el("time", { datetime: isoTime(last.due_ms) }, fullTime(last.due_ms)), " ", el("span", { class: "zone" }, zoneAt(last.due_ms)));
  }

  // The command that prints the delivered record.
  #sayHowToRead(partition, offset) {
    const address = live.status?.listeners.kafka;
    const command = `tarry consume ${this.name.topic} -p ${partition} --from ${offset} -n 1${address && address !== "127.0.0.1:9092" ? ` -b ${address}` : ""}`;
    this.command.replaceChildren(el("code", {}, visible(command)), copyButton(command, "command"));
    this.command.hidden = false;
  }

  #show() {
    const record = this.#record;
    this.node.hidden = false;
    this.#showDue();
    const fact = (name, content, data) => (content === null ? [] : [el("dt", {}, name), el("dd", { data: data ? { field: data } : {} }, content)]);
    const code = (text) => el("code", {}, visible(text));
    this.facts.replaceChildren(
      ...fact("Topic", code(record.topic), "topic"),
      ...fact("Partition", String(record.partition), "partition"),
      ...fact("Id", record.id === null ? none() : code(record.id), "id"),
      ...fact("Key", record.key === null || record.key === "" ? orNone(record.key) : [code(record.key), record.key_base64 ? el("small", {}, " base64: not UTF-8") : null].filter(Boolean), "key"),
      ...fact("Handle", [code(record.handle), copyButton(record.handle, "handle")], "handle"),
      ...fact("Accepted", fullTime(record.accepted_ms), "accepted"),
      ...fact("Timestamp", record.timestamp_ms === undefined ? null : fullTime(record.timestamp_ms), "timestamp"),
      ...fact("Expires", record.expires_ms === null ? null : `${fullTime(record.expires_ms)} (if it could not be delivered before)`, "expires"),
      ...fact("Recurs", record.recurring ? visible(recurrence(record.recurrence)) : null, "recurrence"),
      ...fact("Also in", record.partitions?.length > 1 ? `partitions ${record.partitions.filter((each) => each !== record.partition).join(", ")}` : null, "partitions"),
      ...fact("Damage", record.damage ? visible(record.damage) : null, "damage"));
    this.#showHeaders(record.headers);
    this.headersSection.hidden = false;
    this.valueSection.hidden = record.value === undefined;
    if (record.value !== undefined) this.#showValue(record);
  }

  #showDue() {
    const { due_ms } = this.#record;
    this.due.replaceChildren(el("time", { datetime: isoTime(due_ms) }, fullTime(due_ms)), " ", el("span", { class: "zone" }, zoneAt(due_ms)));
    this.#tick();
  }

  #showHeaders(headers) {
    if (!headers.length) return this.headers.replaceChildren(none());
    this.headers.replaceChildren(el("table", { class: "table headers-table", "aria-label": "Headers" },
      el("thead", { class: "unseen" }, el("tr", {}, el("th", { scope: "col" }, "Name"), el("th", { scope: "col" }, "Value"))),
      el("tbody", {}, headers.map((header) => el("tr", {},
        el("th", { scope: "row" }, visible(header.name), header.name_base64 ? el("small", {}, " base64") : null),
        el("td", {}, orNone(header.value), header.value_base64 ? el("small", {}, " base64") : null))))));
  }

  #showValue(record) {
    if (record.value === null) {
      return this.value.replaceChildren(el("div", { class: "value", data: { field: "value" } }, el("span", { class: "none" }, "null")));
    }
    const all = fromBase64(record.value);
    const shown = representations(all);
    const text = el("pre", { class: "value", tabindex: 0, data: { field: "value" }, "aria-label": "Value" });
    const tabs = shown.map(({ name }) => el("button", { type: "button", class: "tab", "aria-pressed": "false", on: { click: () => choose(name) } }, name));
    const choose = (name) => {
      text.textContent = shown.find((each) => each.name === name).text;
      tabs.forEach((tab) => tab.setAttribute("aria-pressed", String(tab.textContent === name)));
    };
    choose(shown[0].name);
    if (all.length === 0) text.replaceChildren(el("span", { class: "none" }, "empty"));
    this.value.replaceChildren(
      el("div", { class: "value-head" }, el("span", {}, bytes(all.length)), el("span", { class: "tabs" }, tabs),
        el("button", { type: "button", class: "tab", on: { click: () => download(all, record) } }, "Download")),
      text,
      all.length > shown_bytes ? el("p", { class: "note" }, `Only the first ${bytes(shown_bytes)} are shown.`) : "");
  }

  #tick() {
    if (!this.#record || this.#gone) return;
    const left = this.#record.due_ms - live.now();
    setText(this.relative, isOverdue(left) ? `Overdue for ${duration(-left)}` : `Due ${until(left)}`.replace("Due due", "Due"));
    if (left < -stuck_ms) this.#sayWhy();
    else this.why.hidden = true;
    // It is delivered now, or soon: asked for until it is gone.
    if (left < -300 && Date.now() - this.#asked > 1500) {
      this.#asked = Date.now();
      this.#refresh();
    } else if (Date.now() - this.#asked > changed_elsewhere_ms && live.state === "live") {
      this.#asked = Date.now();
      this.#look();
    }
  }

  // A change that this page has asked for is under way; its answer tells what the record is then.
  #isChanging() {
    return $('[data-action="confirm"]:disabled', this.asking) !== null;
  }

  // Others may cancel or move it while it is shown.  One question at a time: a broker that is slow gets no more of them.
  async #look() {
    const { due_ms: due, handle } = this.#record;
    if (this.#isLooking || this.#isChanging()) return;
    this.#isLooking = true;
    try {
      const answer = await get(`/delayed${query({ q: handle, limit: 1 })}`, { signal: this.#abort.signal }).catch(() => null);
      if (!answer || this.#gone || this.#isChanging() || this.#record.due_ms !== due) return;
      const [record] = answer.records;
      // With a next, not all was looked at; and of some partitions nothing is listed, so its own address tells.
      if (record ? record.due_ms !== due : answer.next === null) await this.#refresh();
    } finally {
      this.#isLooking = false;
    }
  }

  // The partition of a record that stays overdue is asked once for what is wrong with it; if nothing is, the broker as a whole may say why.
  async #sayWhy() {
    this.#partitionWhy ??= whysOverdue(this.#record.topic, this.#abort.signal);
    const why = (await this.#partitionWhy)?.(this.#record.partition);
    if (this.#gone || this.#record.due_ms - live.now() >= -stuck_ms) return;
    const text = why ? `Its partition ${why}.` : whyLate();
    setText(this.why, text);
    this.why.hidden = !text;
  }

  async #refresh() {
    const { due_ms: due } = this.#record;
    try {
      const record = await get(this.path, { signal: this.#abort.signal });
      // An answer from before a change of it would bring back what it was.
      if (this.#gone || this.#isChanging() || this.#record.due_ms !== due) return;
      if (record.due_ms !== this.#record.due_ms) {
        this.#record = record;
        this.#show();
        // The question was about the old time.
        if (this.asking.firstChild) {
          this.#endAsking();
          setText(this.outcome, "It has another due time meanwhile.");
          this.outcome.classList.add("warn");
        }
        await this.#loadHistory();
      }
    } catch (error) {
      if (error.status === 404 && !this.#gone && !this.#isChanging()) await this.#becamePast();
    }
  }

  // The focus does not stay in a form that is gone.
  #endAsking() {
    const had = this.asking.contains(document.activeElement);
    this.asking.replaceChildren();
    if (had) $("#panel-title")?.focus({ preventScroll: true });
  }

  // No longer pending.
  async #became(text) {
    this.#gone = true;
    setText(this.relative, this.#record ? "No longer pending; it was due" : "No longer pending");
    setText($("#panel-title"), "Record");
    setText(this.outcome, text);
    this.actions.hidden = true;
    this.why.hidden = true;
    this.#endAsking();
    if (this.#record?.value === undefined) this.valueSection.hidden = true;
    const events = await this.#loadHistory();
    this.onChange();
    return events;
  }

  #ask(action) {
    clearError();
    setText(this.outcome, "");
    this.outcome.classList.remove("warn");
    const record = this.#record;
    const name = record.id !== null ? `“${visible(record.id)}”` : record.handle;
    const dismiss = () => {
      clearError();
      this.asking.replaceChildren();
      $(`[data-action="${action}"]`, this.actions).focus();
    };
    const common = { dataDirectory: live.status?.data ?? "", onDismiss: dismiss };
    let form;
    if (action === "cancel") {
      form = new Confirmation({
        ...common, danger: true, label: "Cancel this record", question: `Cancel ${name}? It will never be delivered${record.recurring ? ", and its recurrence ends" : ""}.`,
        run: () => change("DELETE", `${this.path}?partition=${record.partition}`),
        onDone: ({ result }) => this.#done(result, "cancelled", "It is cancelled and will never be delivered."),
      });
    } else if (action === "deliver") {
      const left = record.due_ms - live.now();
      form = new Confirmation({
        ...common, label: "Deliver it now", question: `Deliver ${name} now${left > 999 ? `, instead of ${until(left)}` : ""}?${record.recurring ? " Its later deliveries stay as they are." : ""}`,
        run: () => change("POST", `${this.path}/deliver?partition=${record.partition}`),
        onDone: async ({ result, partitions }) => {
          const offset = partitions?.[0]?.offset;
          await this.#done(result, "delivered", `It is delivered, at offset ${integer(offset)} of partition ${record.partition}.`);
          if (result === "delivered" && Number.isInteger(offset)) this.#sayHowToRead(record.partition, offset);
        },
      });
    } else {
      const moveTo = new MoveFields(record.due_ms);
      form = new Confirmation({
        ...common, label: "Move this record", question: `Move ${name} to another due time.${record.recurring ? " Only its next delivery moves: the later ones stay at the times of its rule, and those before the new time are left out." : ""}`, fields: moveTo.nodes,
        check: () => (moveTo.body() ? null : moveTo.wrong()),
        run: () => change("PATCH", `${this.path}?partition=${record.partition}`, moveTo.body()),
        onDone: ({ result, partitions }) => {
          const due = partitions?.[0]?.due_ms;
          if (result === "moved" && due) {
            this.#record.due_ms = due;
            this.#showDue();
          }
          this.#done(result, "moved", `It is moved to ${fullTime(due ?? record.due_ms)}.`);
        },
      });
    }
    this.asking.replaceChildren(form.node);
    form.focus();
    form.node.scrollIntoView({ block: "nearest" });
  }

  async #done(result, wanted, text) {
    this.asking.replaceChildren();
    if (result !== wanted) {
      this.outcome.classList.add("warn");
      const last = (await this.#became(result === "already_delivered" ? "Too late: it has been delivered already." : "It is no longer pending, so nothing was changed.")).at(-1);
      if (last && endings.has(last.event)) setText(this.relative, `${pastOf(last.event)}; it was due`);
    } else if (wanted === "moved") {
      setText(this.outcome, text);
      await this.#loadHistory();
      this.onChange();
    } else {
      await this.#became(text);
      setText(this.relative, `${pastOf(wanted)}; it was due`);
    }
    $("#panel-title")?.focus({ preventScroll: true });
  }
}

// Where to move: a time, or a duration from the due time.  The text and the picker say the same.
export class MoveFields {
  constructor(due, { many = false } = {}) {
    this.due = due;
    this.many = many;
    this.text = el("input", { name: "due", type: "text", autocomplete: "off", spellcheck: "false", placeholder: "+1h, -10m or 2026-12-24 18:00", "aria-describedby": "move-hint", on: { input: () => this.#say() } });
    this.picker = el("input", { name: "at", type: "datetime-local", step: "1", "aria-label": "New due time, picked from a calendar", on: { input: () => this.#picked() } });
    this.hint = el("p", { class: "hint", id: "move-hint", role: "status" });
    const quick = ["−10m", "+10m", "+1h", "+1d", "+7d"].map((text) => el("button", { type: "button", class: "tab", on: { click: () => this.#set(text) } }, text));
    this.nodes = [
      el("label", { class: "field" }, el("span", {}, "To"), this.text),
      el("div", { class: "quick" }, quick, this.picker, el("small", {}, `in ${zone}`)), this.hint];
    this.#say();
  }

  #set(text) {
    this.text.value = text;
    this.#say();
    this.text.focus();
  }

  #picked() {
    if (!this.picker.value) return;
    this.text.value = this.picker.value.replace("T", " ");
    this.#say();
  }

  // The request's body; null if the text means nothing.
  body() {
    const text = this.text.value.trim();
    if (!text) return null;
    const length = parseDuration(text);
    if (length !== null) return /^in\s/i.test(text) ? { due: Math.round(live.now() + length) } : { by: `${length}ms` };
    const time = parseTime(text, live.now());
    return time ? { due: Math.round(time.from) } : null;
  }

  wrong() {
    const text = this.text.value.trim();
    return text ? `“${visible(text)}” is neither a time nor a duration. Examples: 2026-12-24 18:00, 18:30, +1h, -10m.` : "Type the new due time, or how much later: 2026-12-24 18:00, or +1h.";
  }

  #say() {
    const body = this.body();
    if (!body) return setText(this.hint, this.text.value.trim() ? this.wrong() : this.many ? "Type a time, or how much later than each record's due time." : "Type a time, or how much later than its due time.");
    if (body.by && this.many) return setText(this.hint, `Each one ${body.by.startsWith("-") ? "earlier" : "later"} by ${duration(Math.abs(parseInt(body.by, 10)))}`);
    const at = body.due ?? this.due + parseInt(body.by, 10);
    setText(this.hint, `${fullTime(at)} ${zoneAt(at)}, ${until(at - live.now())}`);
  }
}

function recurrence(how) {
  if (!how) return "yes";
  const parts = [how.text ?? how.every ?? `${how.cron} ${how.tz ?? ""}`];
  if (how.until_ms) parts.push(`until ${fullTime(how.until_ms)}`);
  if (how.left !== undefined && how.left !== null) parts.push(`${plural(how.left, "delivery", "deliveries")} to come`);
  return parts.join(", ");
}

const endings = new Set(["delivered", "cancelled", "expired"]);
const pastOf = (event) => event[0].toUpperCase() + event.slice(1);

// The broker keeps the last 32 events of an id.  A delivery of a recurring record and the next due time are two of them, and are listed as one.
const kept_events = 32;
const least_listed = kept_events / 2 - 1;

// A whole history begins with the moment when a record was scheduled.
export function isCut(events) {
  return [...new Set(events.map(({ partition }) => partition))].some((partition) => {
    const all = events.filter((event) => event.partition === partition);
    return all.length >= kept_events || (all.length >= least_listed && all[0].event !== "scheduled");
  });
}

// The newest first.  Records that had the id one after the other, in each partition, are kept apart; a recurring one is one record.
function historyItems(events) {
  const hasSeveral = new Set(events.map(({ partition }) => partition)).size > 1;
  const ended = new Set();
  const items = [];
  for (const event of events) {
    if (ended.delete(event.partition) && event.event === "scheduled") items.push(el("li", { class: "divider" }, `an earlier record with this id${hasSeveral ? `, partition ${event.partition}` : ""}`));
    if (endings.has(event.event)) ended.add(event.partition);
    items.push(el("li", {},
      el("span", { class: `event ${event.event}` }, event.event),
      el("time", { datetime: isoTime(event.at_ms) }, fullTime(event.at_ms)),
      el("span", { class: "detail" }, [event.offset !== null && event.offset !== undefined ? `at offset ${integer(event.offset)}` : `due ${fullTime(event.due_ms)}`,
        event.event === "delivered" ? `, ${milliseconds(Math.max(0, event.at_ms - event.due_ms))} after its due time` : "",
        hasSeveral ? `, partition ${event.partition}` : ""].join(""))));
  }
  items.reverse();
  if (isCut(events)) items.push(el("li", { class: "divider", data: { figure: "cut" } }, `Earlier events are not kept: the broker remembers the last ${kept_events} of an id.`));
  if (events.some(({ event }) => event === "cancelled" || event === "moved"))
    items.push(el("li", { class: "hint", data: { figure: "who" } }, "Who cancelled or moved it over the admin: a line with “audit” in the broker's log. A producer that does so by a header leaves none."));
  return items;
}

const none = () => el("span", { class: "none" }, "none");
const section = (title, content) => el("section", {}, el("h3", {}, title), content);

export function copyButton(text, what) {
  const button = el("button", { type: "button", class: "copy", "aria-label": `Copy the ${what}`, title: `Copy the ${what}`, on: {
    click: async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "copied";
      } catch {
        button.textContent = "not allowed";
      }
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    },
  } }, "copy");
  return button;
}

function download(content, record) {
  const link = el("a", { download: `${record.topic}-${record.handle.slice(1)}.bin`, href: URL.createObjectURL(new Blob([content])) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
