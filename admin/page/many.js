// Cancels, moves or delivers many records: which ones, a preview with their number and the first ten, then the
// confirmation.

import { el, setText, visible, $ } from "./dom.js";
import { Refusal, changeInLines, hasToken, keepToken, sentence } from "./api.js";
import { clearError, errorText, showError, tokenField, Confirmation } from "./confirmation.js";
import { fullTime, integer, isoTime, parseMoment, plural } from "./format.js";
import { live } from "./live.js";
import * as panel from "./panel.js";
import { MoveFields } from "./record.js";

const verbs = { cancel: ["Cancel", "cancelled"], move: ["Move", "moved"], deliver: ["Deliver", "delivered"] };

export function openMany(search, onChange) {
  const view = new ManyView(search, onChange);
  panel.open({ name: "many", title: "Many at once", content: view.node });
  view.node.querySelector("input, select").focus();
}

class ManyView {
  constructor(search, onChange) {
    this.onChange = onChange;
    const topics = (live.topics?.topics ?? []).filter(({ pending }) => pending > 0).map(({ name }) => name);
    const pattern = search.words && !search.id && !search.key ? `*${search.words}*` : "";
    const input = (name, value, placeholder) => el("input", { name, value: value ?? "", placeholder, type: "text", autocomplete: "off", spellcheck: "false" });
    this.topic = el("input", { name: "topic", list: "many-topics", value: search.topic ?? (topics.length === 1 ? topics[0] : ""), placeholder: "the topic's name", type: "text", autocomplete: "off", spellcheck: "false" });
    this.id = input("id", search.id ?? pattern, "order-*");
    this.key = input("key", search.key, "47*");
    const text = (ms) => (ms === null || ms === undefined ? "" : isoTime(ms));
    this.from = input("from", text(search.span?.from), "now, +1h, 2026-12-24 or nothing");
    this.to = input("to", text(search.span?.to), "+1d, 2026-12-25 or nothing");
    this.move = new MoveFields(null, { many: true });
    this.moveHolder = el("div", { hidden: true }, this.move.nodes);
    this.choice = el("div", { class: "choice", role: "radiogroup", "aria-label": "What to do" }, Object.entries(verbs).map(([action, [verb]]) =>
      el("label", {}, el("input", { type: "radio", name: "what", value: action, checked: action === "cancel" }), verb)));
    this.tokenPlace = el("div");
    this.errorPlace = el("div", { "aria-live": "assertive" });
    this.result = el("div", { class: "preview" });
    this.preview = el("button", { type: "submit", class: "primary", data: { action: "preview" } }, "Preview");
    const field = (name, control) => el("label", { class: "field" }, el("span", {}, name), control);
    this.form = el("form", { class: "many", novalidate: true, on: { submit: (event) => this.#preview(event), input: () => this.#changed() } },
      field("Topic", this.topic), el("datalist", { id: "many-topics" }, topics.map((name) => el("option", { value: name }))),
      field("Id", this.id), field("Key", this.key),
      el("div", { class: "pair" }, field("Due from", this.from), field("before", this.to)),
      el("p", { class: "hint" }, "Every condition has to match. * stands for any text, ? for one character."),
      this.choice, this.moveHolder, this.tokenPlace, this.errorPlace, el("div", { class: "buttons" }, this.preview));
    this.node = el("div", {}, this.form, this.result);
    if (!hasToken()) this.#askForToken();
  }

  get action() {
    return $("input[name=what]:checked", this.form).value;
  }

  #askForToken() {
    this.tokenPlace.replaceChildren(tokenField(live.status?.data ?? ""));
  }

  // A preview is of what was asked for, so it goes when that changes.
  #changed() {
    this.moveHolder.hidden = this.action !== "move";
    this.result.replaceChildren();
    clearError();
  }

  // What the request says, or a sentence about what is wrong.
  #selection() {
    if (!this.topic.value.trim()) return "Type the topic: a change of many records is limited to one topic.";
    const body = { action: this.action };
    if (this.id.value.trim()) body.id = this.id.value.trim();
    if (this.key.value.trim()) body.key = this.key.value.trim();
    for (const [name, input] of [["from", this.from], ["to", this.to]]) {
      const text = input.value.trim();
      if (!text) continue;
      const at = parseMoment(text, live.now());
      if (at === null) return `“${visible(text)}” is not a time. Examples: now, +1h, 18:30, 2026-12-24.`;
      body[name] = Math.round(at);
    }
    if (Object.keys(body).length === 1) return "Choose records by an id, a key or a time. The id * selects all records of the topic that have an id.";
    if (body.action === "move") {
      const where = this.move.body();
      if (!where) return this.move.wrong();
      Object.assign(body, where);
    }
    return body;
  }

  async #preview(event) {
    event.preventDefault();
    clearError();
    this.result.replaceChildren();
    const body = this.#selection();
    if (typeof body === "string") return showError(this.errorPlace, body);
    const input = $("input[name=token]", this.tokenPlace);
    if (input) {
      if (!input.value.trim()) {
        showError(this.errorPlace, "A preview of a change needs the broker's token, too: type it above.");
        input.focus();
        return;
      }
      keepToken(input.value.trim());
    }
    const path = `/delayed/${encodeURIComponent(this.topic.value.trim())}/select`;
    this.preview.disabled = true;
    setText(this.preview, "Looking…");
    try {
      const answer = await changeInLines("POST", path, { ...body, dry_run: true }, ({ matched }) => setText(this.preview, `Looking… ${integer(matched)}`));
      if (answer.error) throw new Refusal(sentence(answer.error), 0);
      this.tokenPlace.replaceChildren();
      this.#show(path, body, answer);
    } catch (error) {
      if (error.status === 401) this.#askForToken();
      showError(this.errorPlace, errorText(error));
      $("input[name=token]", this.tokenPlace)?.focus();
    } finally {
      this.preview.disabled = false;
      setText(this.preview, "Preview");
    }
  }

  #show(path, body, { matched, records = [] }) {
    if (!matched) return this.result.replaceChildren(el("p", { role: "status", data: { figure: "matched" } }, "No pending record matches."));
    const [verb, done] = verbs[body.action];
    const what = plural(matched, "record");
    const confirmation = new Confirmation({
      question: `${verb} ${matched === 1 ? "this record" : `these ${what}`}? ${body.action === "cancel" ? "They will never be delivered. " : ""}Records that match by then are included, those delivered meanwhile are not.`,
      label: `${verb} ${what}`, danger: body.action === "cancel", dataDirectory: live.status?.data ?? "",
      run: () => changeInLines("POST", path, { ...body, dry_run: false }, ({ done: count }) => confirmation.setLabel(`${integer(count ?? 0)} ${done}…`)),
      onDone: (answer) => {
        const parts = [`${plural(answer.done, "record")} ${done}`];
        if (answer.already_delivered) parts.push(`${integer(answer.already_delivered)} delivered already`);
        if (answer.unknown) parts.push(`${integer(answer.unknown)} gone meanwhile`);
        if (answer.failed) parts.push(`${integer(answer.failed)} refused`);
        this.result.replaceChildren(el("p", { class: "outcome", role: "status" }, `${parts.join(", ")}.`));
        if (answer.error) showError(this.result, sentence(answer.error));
        this.onChange();
      },
      onDismiss: () => {
        clearError();
        this.result.replaceChildren();
        this.preview.focus();
      },
    });
    this.result.replaceChildren(
      el("p", { role: "status" }, el("b", { data: { figure: "matched" } }, integer(matched)), ` ${matched === 1 ? "record matches" : "records match"}${matched > records.length && records.length ? `, the first ${records.length} by due time:` : ":"}`),
      el("ol", { class: "first-ten" }, records.map((record) => el("li", {},
        el("time", { datetime: isoTime(record.due_ms) }, fullTime(record.due_ms)),
        el("code", {}, visible(record.id ?? record.handle)), record.key === null ? "" : el("span", {}, `key ${visible(record.key)}`)))),
      confirmation.node);
    confirmation.node.scrollIntoView({ block: "nearest" });
  }
}
