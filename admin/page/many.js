// Cancels, moves or delivers many records: which ones, a preview with their number by topic and the first hundred, then
// the confirmation.  A preview changes nothing, so it needs no token where reading needs none.  The broker does it topic by topic, and so does this form: a pattern of topics means each of them.

import { el, reconcile, setHidden, setText, visible, $ } from "./dom.js";
import { Refusal, change, changeInLines, getInLines, query, recordPath, sentence } from "./api.js";
import { clearError, errorText, showError, Confirmation } from "./confirmation.js";
import { duration, fullTime, integer, isoTime, parseMoment, plural, typedTime, zone } from "./format.js";
import { isPattern } from "./glob.js";
import { live } from "./live.js";
import * as panel from "./panel.js";
import { MoveFields } from "./record.js";
import { parseSpan, spanText } from "./search.js";

const shown = 100;
const most_first = 1000;  // The limit of "at most": those that are shown are changed one by one.
const at_a_time = 4;
const step = 1000;  // What the broker has begun it finishes: so many records of a topic.
const listed = 12;  // Topics in the form; all others can be typed.
const verbs = { cancel: ["Cancel", "cancelled"], move: ["Move", "moved"], deliver: ["Deliver", "delivered"] };

// `records`: some that the search has found.
export function openMany(search, records, onChange) {
  const view = new ManyView(selectionOf(search, records), onChange);
  const update = () => view.showTopics();
  live.addEventListener("topics", update);
  panel.open({ name: "many", title: "Many at once", content: view.node, closed: () => {
    live.removeEventListener("topics", update);
    view.stopLooking();
  } });
  view.node.querySelector("input, select").focus();
  return view;
}

// Words of a search may be a part of ids, keys or topics' names, or a time; a selection has one pattern for each name, and one time.  `lost`
// says what of the search no condition of a selection can say: without it the selection would have records that the search does not find.
// `fewer` says that it does not have all of them.
export function selectionOf(search, records) {
  const { words } = search;
  if (search.wrong) return { ...search, lost: `The search cannot be read, so it is not known which records are meant. ${search.wrong}` };
  if (search.recurring !== null) return { ...search, lost: `The search has recurring:${search.recurring ? "yes" : "no"}, which a selection cannot express: it takes recurring and other records alike.` };
  if (!words) return search;
  const lost = (why) => ({ ...search, lost: `The search has “${visible(words)}”, which is not among the conditions below: ${why}` });
  // An id is of one record in its partition.
  const [only] = records.length === 1 && words === records[0].handle ? records : [];
  if (only?.id && only.id === only.id.trim() && !isPattern(only.id) && !search.id && !search.key) return { ...search, topic: only.topic, partition: String(only.partition), id: only.id };
  if (words.startsWith("@")) return lost("a handle names one record. Open that record to change it.");
  if (isPattern(words)) return lost("there *, ? and [ ] stand for other characters.");
  const count = (name) => records.filter((record) => record[name]?.toLowerCase().includes(words.toLowerCase())).length;
  const free = ["id", "key", "topic"].filter((name) => !search[name]);
  const most = free.reduce((best, name) => (count(name) > (best ? count(best) : 0) ? name : best), null);
  const span = most || !records.length || search.span ? null : parseSpan(words, live.now());
  if (span) return { ...search, span };
  // Words that find nothing select nothing.
  const name = most ?? (records.length ? null : free.find((each) => each !== "topic"));
  if (!name) return lost("each of them takes one pattern, and the search has two for one.");
  const others = records.length - count(name);
  return { ...search, [name]: `*${words}*`, fewer: others ? `Only records whose ${name} contains “${visible(words)}” are selected; the search finds others, too: ${integer(others)} of those that it lists.` : null };
}

const pendingTopics = () => (live.topics?.topics ?? []).filter(({ pending }) => pending > 0);

class ManyView {
  #looking = null;  // Ends the preview that is under way.

  constructor(search, onChange) {
    this.onChange = onChange;
    const topics = pendingTopics();
    const only = topics.length === 1 ? topics[0].name : "";
    const input = (name, value, placeholder) => el("input", { name, value: value ?? "", placeholder, type: "text", autocomplete: "off", spellcheck: "false" });
    this.topic = el("input", { name: "topic", list: "many-topics", value: search.topic ?? only, placeholder: "a topic, orders-* or * for all", type: "text", "aria-describedby": "many-topic-hint", autocomplete: "off", spellcheck: "false" });
    this.partition = input("partition", search.partition, "all");
    this.partition.inputMode = "numeric";
    this.id = input("id", search.id, "order-*");
    this.key = input("key", search.key, "47*");
    const text = (ms) => (ms === null || ms === undefined ? "" : typedTime(Math.round(ms)));
    this.from = input("from", text(search.span?.from), "now, 18:30");
    this.to = input("to", text(search.span?.to), "+1d, 2026-12-25");
    this.first = input("first", "", "all");
    this.first.inputMode = "numeric";
    this.move = new MoveFields(null, { many: true });
    this.moveHolder = el("div", { hidden: true }, this.move.nodes);
    this.choice = el("div", { class: "choice", role: "radiogroup", "aria-label": "What to do" }, Object.entries(verbs).map(([action, [verb]]) =>
      el("label", {}, el("input", { type: "radio", name: "what", value: action }), verb)));
    this.errorPlace = el("div", { "aria-live": "assertive" });
    this.result = el("div", { class: "preview" });
    this.preview = el("button", { type: "submit", class: "primary", disabled: Boolean(search.lost), data: { action: "preview" } }, "Preview");
    this.stop = el("button", { type: "button", hidden: true, data: { action: "stop-preview" }, on: { click: () => this.stopLooking() } }, "Stop looking");
    this.said = el("span", { role: "status" });
    this.far = el("span", { data: { figure: "looking" } });  // Not said: it changes each second.
    this.lost = search.lost ? el("div", { class: "trouble-line", role: "alert", data: { field: "lost" } }, search.lost,
      el("div", { class: "buttons" }, el("button", { type: "button", data: { action: "without" }, on: { click: () => this.#selectWithout() } }, "Select without it"))) : null;
    this.otherSearch = el("div", { class: "trouble-line", role: "status", hidden: true, data: { field: "other-search" } });
    const field = (name, control) => el("label", { class: "field" }, el("span", {}, name), control);
    this.form = el("form", { class: "many", novalidate: true, on: { submit: (event) => this.#preview(event), input: () => this.#changed() } },
      this.otherSearch, this.lost, search.fewer ? el("p", { class: "hint", data: { field: "fewer" } }, search.fewer) : "",
      el("div", { class: "pair with-partition" }, field("Topic", this.topic), field("Partition", this.partition)), this.names = el("datalist", { id: "many-topics" }),
      this.topics = el("div", { class: "quick many-topics", role: "group", "aria-label": "Topics with pending records" }),
      el("p", { class: "hint", id: "many-topic-hint" }, "One topic, or a pattern such as orders-*; * means every topic. The broker changes one topic after the other, so a change of several is not made at one moment."),
      field("Id", this.id), field("Key", this.key),
      el("div", { class: "pair" }, field("Due from", this.from), field("before", this.to)),
      el("p", { class: "hint" }, `Times are in ${zone}, unless they have an offset. Every condition has to match. * stands for any text, ? for one character, [a-c] for one of these and [!x] for any other.`),
      field("At most, soonest first", this.first),
      this.choice, this.moveHolder, this.errorPlace, el("div", { class: "buttons" }, this.preview, this.stop), el("p", { class: "hint" }, this.said, " ", this.far));
    this.node = el("div", {}, this.form, this.result);
    this.showTopics();
  }

  // Those with pending records, as buttons that choose them.
  showTopics() {
    const topics = pendingTopics();
    const choices = topics.slice(0, listed).map(({ name, pending }) => [name, `${visible(name)} ${integer(pending)}`]);
    if (topics.length > 1) choices.unshift(["*", "all topics"]);
    reconcile(this.topics, choices, ([name]) => name, ([name]) => el("button", { type: "button", class: "tab", data: { topic: name }, on: { click: () => this.#choose(name) } }),
      (button, [, text]) => setText(button, text));
    reconcile(this.names, topics, ({ name }) => name, ({ name }) => el("option", { value: name }));
  }

  // The list shows what another search has found, which takeOver() brings into the form; null: it does not.
  tellOtherSearch(takeOver) {
    setHidden(this.otherSearch, !takeOver);
    this.otherSearch.replaceChildren(...(takeOver ? ["The list shows another search than this form has. ",
      el("div", { class: "buttons" }, el("button", { type: "button", data: { action: "take-over" }, on: { click: takeOver } }, "Use the new search"))] : []));
  }

  #choose(name) {
    this.topic.value = name;
    this.#changed();
  }

  // Somebody has read what is missing, and means the conditions as they are.
  #selectWithout() {
    this.lost.remove();
    this.lost = null;
    this.preview.disabled = false;
    this.preview.focus();
  }

  get action() {
    return $("input[name=what]:checked", this.form)?.value ?? null;
  }

  // A preview is of what was asked for, so it goes when that changes.
  #changed() {
    this.stopLooking();
    this.moveHolder.hidden = this.action !== "move";
    this.result.replaceChildren();
    clearError();
  }

  // The request's body, or a sentence about what is wrong.
  #selection() {
    if (!this.topic.value.trim()) return "Type the topic, or * for all topics.";
    const body = {};
    if (this.id.value.trim()) body.id = this.id.value.trim();
    if (this.key.value.trim()) body.key = this.key.value.trim();
    for (const [name, input] of [["from", this.from], ["to", this.to]]) {
      const text = input.value.trim();
      if (!text) continue;
      const at = parseMoment(text, live.now());
      if (at === null) return `“${visible(text)}” is not a time. Examples: now, +1h, 18:30, 2026-12-24.`;
      body[name] = Math.round(at);
    }
    if (Object.keys(body).length === 0) return "Choose records by an id, a key or a time. The id * selects all records that have an id.";
    const partition = this.partition.value.trim();
    if (partition) {
      if (!/^\d+$/.test(partition)) return `“${visible(partition)}” is not the number of a partition. Leave it empty for all partitions.`;
      if (isPattern(this.topic.value.trim())) return "A partition belongs to one topic: type its whole name, or leave the partition empty.";
      body.partition = Number(partition);
    }
    if (!this.action) return "Choose what to do: cancel, move or deliver. The preview changes nothing.";
    body.action = this.action;
    if (body.action === "move") {
      const where = this.move.body();
      // No calendar goes further than Date's.
      if (!where || !(Math.abs(where.due ?? live.now() + parseInt(where.by, 10)) < 8e15)) return this.move.wrong();
      Object.assign(body, where);
    }
    return body;
  }

  async #preview(event) {
    event.preventDefault();
    if (this.lost) return;
    clearError();
    this.result.replaceChildren();
    const body = this.#selection();
    if (typeof body === "string") return showError(this.errorPlace, body);
    const first = this.first.value.trim() ? Number(this.first.value.trim()) : null;
    if (first !== null && !(Number.isInteger(first) && first >= 1 && first <= most_first))
      return showError(this.errorPlace, `“${visible(this.first.value)}” is not a number from 1 to ${integer(most_first)}. Leave it empty for all that match.`);
    const abort = new AbortController();
    this.#looking = abort;
    setHidden(this.stop, false);
    // A button that is disabled loses the focus.
    if (document.activeElement === this.preview) this.stop.focus();
    this.preview.disabled = true;
    setText(this.said, "Looking…");
    const tell = (line) => setText(this.far, `${integer(line.matched)} found so far`);
    try {
      const { action: _action, due: _due, by: _by, ...which } = body;
      const topic = this.topic.value.trim();
      // One question for all topics of a pattern: each one would have the broker look through all that is pending.
      const answer = await getInLines(`/delayed/select${query({ topic, ...which, show: first ?? shown })}`, { signal: abort.signal, onLine: tell });
      if (answer.error) throw new Refusal(sentence(answer.error), 0);
      const found = Object.entries(answer.topics ?? (answer.matched ? { [topic]: answer.matched } : {}))
        .map(([name, matched]) => ({ topic: name, matched, records: answer.records.filter((record) => record.topic === name) }));
      if (abort.signal.aborted) return;
      this.#endLooking("");
      this.#show(body, first === null ? found : onlyFirst(found, first), first);
    } catch (error) {
      if (abort.signal.aborted) return;
      this.#endLooking("");
      showError(this.errorPlace, errorText(error));
    }
  }

  // Nobody waits for the preview any more: its broker stops, too.
  stopLooking() {
    if (!this.#looking) return;
    this.#looking.abort();
    this.#endLooking("Stopped looking. Nothing was changed.");
  }

  #endLooking(said) {
    this.#looking = null;
    const had = document.activeElement === this.stop;
    this.preview.disabled = false;
    setHidden(this.stop, true);
    setText(this.said, said);
    setText(this.far, "");
    if (had) this.preview.focus();
  }

  // The button that asked for it may be gone, or disabled, so the focus goes to what came of it.
  #tell(first, ...more) {
    first.tabIndex = -1;
    this.result.replaceChildren(first, ...more);
    first.focus({ preventScroll: true });
  }

  // `found`: {topic, matched, records} of each topic in which there are some; `first`: only those that are shown, null: all that match.
  #show(body, found, first) {
    if (!found.length) return this.#tell(el("p", { role: "status", data: { figure: "matched" } }, "No pending record matches."));
    const [verb, done] = verbs[body.action];
    const matched = found.reduce((sum, each) => sum + each.matched, 0);
    const what = plural(matched, "record");
    const topics = found.length > 1 ? ` of ${plural(found.length, "topic")}` : ` of ${visible(found[0].topic)}${body.partition === undefined ? "" : `, partition ${body.partition}`}`;
    const where = body.action === "move" ? ` ${whereTo(body)}` : "";
    const records = found.flatMap(({ topic, records: some }) => some.map((record) => ({ ...record, topic }))).sort((a, b) => a.due_ms - b.due_ms).slice(0, first ?? shown);
    const work = { isStopped: false, cut: () => {} };
    const telling = (count) => confirmation.setLabel(`${integer(count)} of ${integer(matched)} ${done}…`);
    const confirmation = new Confirmation({
      question: `${verb} ${matched === 1 ? "this record" : `these ${what}`}${topics}${where}? ${body.action === "cancel" ? "They will never be delivered. " : ""}${
        first === null ? "New records that match are included; records that are delivered before you confirm are not." : "Only these records are changed, if they are still pending when you confirm."}`,
      label: `${verb} ${what}${where}`, danger: body.action === "cancel", dataDirectory: live.status?.data ?? "",
      run: async () => {
        Object.assign(work, { isStopped: false, cut: () => {} });
        telling(0);
        this.form.inert = true;
        try {
          return await (first === null ? changeAll(body, found, work, telling) : changeThese(body, records, work, telling));
        } finally {
          this.form.inert = false;
        }
      },
      stop: () => {
        work.isStopped = true;
        work.cut();
      },
      onDone: (answer) => {
        const parts = [work.isStopped ? `Stopped: ${integer(answer.done)}${answer.isCut ? " or more" : ""} of ${plural(matched, "record")} ${done}` : `${plural(answer.done, "record")} ${done}`];
        if (answer.already_delivered) parts.push(`${integer(answer.already_delivered)} delivered already`);
        if (answer.unknown) parts.push(`${integer(answer.unknown)} no longer pending`);
        if (answer.failed) parts.push(`${integer(answer.failed)} refused`);
        this.#tell(el("p", { class: "outcome", role: "status" }, `${parts.join(", ")}.`));
        if (body.action === "move" && answer.done) this.result.append(el("p", {}, el("a", { data: { action: "show-moved" }, href: `#pending?q=${encodeURIComponent(searchOfMoved(body, found, records, matched))}` }, "Show them at their new due times")));
        if (answer.error) showError(this.result, sentence(answer.error));
        this.onChange();
      },
      onDismiss: () => {
        clearError();
        this.result.replaceChildren();
        this.preview.focus();
      },
    });
    this.#tell(
      el("p", { role: "status" }, el("b", { data: { figure: "matched" } }, integer(matched)), first === null ? ` ${matched === 1 ? "record matches" : "records match"}:` : `, the soonest of those that match:`),
      el("ul", { class: "by-topic", "aria-label": "Records by topic" }, found.map((each) => el("li", {}, el("b", {}, integer(each.matched)), ` of ${visible(each.topic)}`))),
      el("ol", { class: "first-ones", tabindex: 0, "aria-label": "The first of them by due time" }, records.map((record) => el("li", {},
        el("time", { datetime: isoTime(record.due_ms) }, fullTime(record.due_ms)),
        body.action === "move" ? el("time", { class: "new-due", datetime: isoTime(movedTo(body, record)) }, `→ ${fullTime(movedTo(body, record))}`) : "",
        el("code", {}, visible(record.id ?? record.handle)), record.key === null ? "" : el("span", {}, `key ${visible(record.key)}`),
        found.length > 1 ? el("span", {}, visible(record.topic)) : ""))),
      matched > records.length ? el("p", { class: "hint", data: { figure: "more" } }, `and ${integer(matched - records.length)} more, which are due later`) : "",
      confirmation.node);
    confirmation.node.scrollIntoView({ block: "nearest" });
  }
}

const movedBy = (body) => parseInt(body.by, 10);
const movedTo = (body, record) => body.due ?? record.due_ms + movedBy(body);
const whereTo = (body) => (body.by ? `${movedBy(body) < 0 ? "earlier" : "later"} by ${duration(Math.abs(movedBy(body)))}` : `to ${fullTime(body.due)}`);

// The soonest of all topics together.
function onlyFirst(found, first) {
  const records = found.flatMap(({ topic, records: some }) => some.map((record) => ({ ...record, topic }))).sort((a, b) => a.due_ms - b.due_ms).slice(0, first);
  return found.map(({ topic }) => ({ topic, records: records.filter((each) => each.topic === topic) }))
    .filter((each) => each.records.length).map((each) => ({ ...each, matched: each.records.length }));
}

// The search that finds the moved records where they are now.
function searchOfMoved(body, found, records, matched) {
  const quoted = (text) => (/\s/.test(text) ? `"${text}"` : text);
  const terms = found.length === 1 ? [`topic:${found[0].topic}`] : [];
  if (body.partition !== undefined) terms.push(`partition:${body.partition}`);
  for (const name of ["id", "key"]) if (body[name]) terms.push(`${name}:${quoted(body[name])}`);
  const dues = records.map((record) => movedTo(body, record));
  const [from, to] = [dues.reduce((a, b) => Math.min(a, b)), dues.reduce((a, b) => Math.max(a, b)) + 1];
  terms.push(body.due || matched === records.length ? spanText(from, to) : `due:${isoTime(from)}..`);
  return terms.join(" ");
}

const select = (topic, body, options) => changeInLines("POST", `/delayed/${encodeURIComponent(topic)}/select`, body, options);

// Topic by topic; the first failure ends it, and what was done before is told with it.  `work`: isStopped ends it before the next topic, and cut()
// in the middle of one that has much left; how much of that was done is then known only to its last line.
async function changeAll(body, found, work, onDone) {
  const sum = { done: 0, already_delivered: 0, unknown: 0, failed: 0, error: null, isCut: false };
  const add = (answer) => ["done", "already_delivered", "unknown", "failed"].forEach((name) => { sum[name] += answer[name] ?? 0; });
  for (const { topic, matched } of found) {
    if (work.isStopped) break;
    const abort = new AbortController();
    let last = {};
    work.cut = () => matched - (last.done ?? 0) > step && abort.abort();
    const onLine = (line) => {
      last = line;
      onDone(sum.done + (line.done ?? 0));
    };
    try {
      const answer = await select(topic, { ...body, dry_run: false }, { signal: abort.signal, onLine });
      add(answer);
      sum.error = answer.error ?? null;
    } catch (error) {
      add(last);
      sum.isCut = abort.signal.aborted;
      if (sum.isCut) break;
      if (error.status === 401 || !sum.done) throw error;
      sum.error = `topic ${visible(topic)}: ${errorText(error)}`;
    }
    if (sum.error) break;
  }
  return sum;
}

// Those records alone, each by its handle, a few at a time.
async function changeThese(body, records, work, onDone) {
  const sum = { done: 0, already_delivered: 0, unknown: 0, failed: 0, error: null };
  const { by, due } = body;
  const where = by ? { by } : { due };
  const rest = [...records];
  const worker = async () => {
    while (rest.length && !sum.error && !work.isStopped) {
      const path = recordPath(rest.shift());
      try {
        const { result } = body.action === "cancel" ? await change("DELETE", path)
          : body.action === "deliver" ? await change("POST", `${path}/deliver`) : await change("PATCH", path, where);
        if (result === verbs[body.action][1]) sum.done += 1;
        else sum[result] += 1;
        onDone(sum.done);
      } catch (error) {
        if (error.status === 401) throw error;
        sum.failed += 1;
        sum.error = errorText(error);
      }
    }
  };
  await Promise.all(Array.from({ length: at_a_time }, worker));
  return sum;
}
