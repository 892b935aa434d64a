// Starts the page: the head with its figures, the views and the way between them, keys, theme, login.

import { onLogin, postLogin, forgetToken, keepToken } from "./api.js";
import { errorText, showError, clearError, tokenField } from "./confirmation.js";
import { el, reconcile, setAttribute, setHidden, setText, visible, $, $$ } from "./dom.js";
import { bytes, duration, integer, milliseconds, nearTime, plural, rate, timeOf } from "./format.js";
import { thingsToSee } from "./health.js";
import { isStuck, lastRate, live, nextDueIn, oldestOverdue } from "./live.js";
import * as panel from "./panel.js";
import { isDiskShort, sinceStart, tightest } from "./parts.js";
import { redraw } from "./charts.js";
import { pendingView } from "./view_pending.js";
import { overdueView } from "./view_overdue.js";
import { topicsView } from "./view_topics.js";
import { groupsView } from "./view_groups.js";
import { wheelView } from "./view_wheel.js";
import { purgatoryView } from "./view_purgatory.js";
import { shardsView } from "./view_shards.js";
import { clientsView } from "./view_clients.js";

const makers = { pending: pendingView, overdue: overdueView, topics: topicsView, groups: groupsView, wheel: wheelView, purgatory: purgatoryView, shards: shardsView, clients: clientsView };
const titles = { pending: "Pending", overdue: "Overdue", topics: "Topics", groups: "Groups", wheel: "Wheel", purgatory: "Purgatory", shards: "Shards", clients: "Clients" };
const names = Object.keys(makers);
const views = {};
let shown = null;
// The first figures come within a second or so; what takes longer is told.
const connecting_ms = 3000;
// A browser keeps a seventh request to the same address waiting, and tells nobody.
const unanswered = "The broker has not answered for 15 seconds. If the page is open in more than five windows, close some: a browser makes only six connections to one address.";

// #VIEW, #VIEW/NAME, #pending/TOPIC/HANDLE, each with ?q=SEARCH.
function route() {
  const [path, parameters = ""] = location.hash.slice(1).split("?");
  const parts = path.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  // The skip link goes to the content, not to another view.
  if (parts[0] === "main" && shown) return;
  const isUnknown = !["", "main", ...names].includes(parts[0]);
  $("#no-view").replaceChildren();
  if (isUnknown) {
    // What stands behind an unknown name is no record and no search of the overview.
    history.replaceState(null, "", "#pending");
    route();
    $("#no-view").replaceChildren(el("p", { class: "trouble-line" }, `There is no view “${visible(parts[0])}”. This is the overview of pending records.`));
    return;
  }
  const name = names.includes(parts[0]) ? parts[0] : "pending";
  const changed = shown !== name;
  const isFirst = shown === null;
  if (changed) {
    if (shown) {
      views[shown].hide?.();
      panel.close();
    }
    shown = name;
    for (const section of $$("main > section")) setHidden(section, section.dataset.view !== name);
    for (const link of $$("nav.views a")) {
      if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    $('nav.views [aria-current="page"]').scrollIntoView({ block: "nearest", inline: "center" });
    // A view is made when it is first looked at.
    views[name] ??= makers[name]($(`[data-view="${name}"]`));
    // Typed text searches pending records: in another view it would look like a filter of that one.
    if (name !== "pending") $("input[type=search]").value = "";
    document.title = `${titles[name]} · Tarry`;
    const main = $("#main");
    main.setAttribute("aria-labelledby", `title-${name}`);
    // The focus does not stay in a view that is gone, and a screen reader says the name of the new one.
    if (!isFirst && (document.activeElement === document.body || document.activeElement?.closest("[hidden]"))) main.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }
  views[name].show?.(parts.slice(1), new URLSearchParams(parameters), changed);
  views[name].draw?.();
}

// Until somebody has read it: totals count from then on, and what was seen before may be gone.
function restarted() {
  const { restarted: found } = live;
  if (!found) {
    $("#restarted").replaceChildren();
    return;
  }
  const dismiss = () => {
    live.dismissRestart();
    restarted();
    $("#main").focus({ preventScroll: true });
  };
  $("#restarted").replaceChildren(el("div", { class: "trouble-line notice" },
    el("span", {}, `The broker was restarted at ${nearTime(found.at, live.now())} (uptime ${duration(found.uptime_ms)} when this page found it). Totals count from then on.${
      found.hasOtherPage ? ` It has version ${visible(found.version)} now: load the page again for the page of that version.` : ""}`),
    el("button", { type: "button", data: { action: "dismiss-restart" }, on: { click: dismiss } }, "Dismiss")));
}

// In an open record.
const recordKeys = { m: "move", d: "deliver", c: "cancel" };

let drawing = false;
// However many events come, what is seen is drawn once a frame.
function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    head();
    if (shown) views[shown].draw?.();
  });
}

function head() {
  const { status } = live;
  if (!status) return;
  const { delayed } = status;
  const figure = (name, text, state = "") => {
    const node = $(`[data-figure="${name}"]`);
    setText(node, text);
    setAttribute(node, "class", `figure-value ${state}`.trim());
  };
  figure("pending", integer(delayed.pending));
  nextDue();
  health();
  figure("overdue", integer(delayed.overdue), delayed.overdue > 0 ? "warn" : "");
  setText($("#overdue-name"), isStuck() ? `overdue, ${duration(oldestOverdue())}` : "overdue");
  figure("delivered", rate(lastRate("delivered")));
  figure("lag", delayed.lag_ms.count ? milliseconds(delayed.lag_ms.p99) : "–");
  const { storage } = status;
  figure("disk", `${bytes(storage.bytes)}, ${bytes(tightest(storage)?.free_bytes)} free`, isDiskShort(status) ? "warn" : "");
  const refused = Object.values(status.refused_batches ?? {}).reduce((sum, count) => sum + count, 0);
  const mark = $("#refused");
  setHidden(mark, refused === 0);
  setText(mark, `${integer(refused)} refused`);
  setAttribute(mark, "title", `${plural(refused, "batch was", "batches were")} refused ${sinceStart(status)}`);
  setText($("#about"), `Tarry ${status.version}\nup ${duration(status.uptime_ms)}\n${status.listeners.kafka}${status.state === "running" ? "" : `\n${status.state}`}`);
  setAttribute($("#about"), "class", status.state === "running" ? "about" : "about warn");
}

// One answer for all of it: what is wrong, and where.
function health() {
  const things = thingsToSee({ status: live.status, topics: live.topics, groups: live.groups, history: live.history, now: live.now(), oldest: oldestOverdue() });
  const node = $("#health");
  setAttribute(node, "class", things.length ? "bad" : "");
  setText(node.firstElementChild, things.length ? `${plural(things.length, "thing")} to look at:` : "Healthy");
  reconcile(node.lastElementChild, things, ({ name }) => name, () => el("li", {}, el("a")), (item, { name, text, hash }) => {
    item.dataset.thing = name;
    setAttribute(item.firstElementChild, "href", hash);
    setText(item.firstElementChild, text);
  });
}

function nextDue() {
  const left = nextDueIn();
  setText($('[data-figure="next-due"]'), left === undefined ? "–" : left === null ? "none" : left < 1000 ? "now" : `in ${duration(left)}`);
}

function connection() {
  const node = $("#connection");
  document.body.classList.toggle("stale", live.state === "lost");
  if (live.state === "lost") {
    const why = live.reason ?? (live.isUnanswered ? unanswered : "");
    // Without a count of seconds: a screen reader would say each of them.
    setText(node, [live.status ? `The connection was lost at ${timeOf(live.since)}.` : `No figures have come since ${timeOf(live.begun)}.`, why,
      live.status ? "The figures are from that time; reconnecting." : "Trying again."].filter(Boolean).join(" "));
  } else if (live.state === "connecting" && Date.now() - live.begun > connecting_ms && !$("#dialog").open) {
    setText(node, `Waiting for the broker's first figures since ${timeOf(live.begun)}.`);
  } else if (live.status && live.status.state !== "running") {
    setText(node, `The broker is in the state “${live.status.state}”${live.status.state === "disk full" ? ": it accepts no records until there is space again" : ""}.`);
  } else {
    setText(node, "");
  }
  node.className = node.textContent ? "trouble" : "";
  document.body.classList.toggle("with-trouble", node.textContent !== "");
}

const themes = { auto: ["◐", "Theme: same as the system"], light: ["☀", "Theme: light"], dark: ["☾", "Theme: dark"] };
const isSystemDark = matchMedia("(prefers-color-scheme: dark)");

// After the system's theme comes the other one, so that the first click is seen.
const themesInOrder = () => (isSystemDark.matches ? ["auto", "light", "dark"] : ["auto", "dark", "light"]);

function theme(next) {
  const now = document.documentElement.dataset.theme ?? "auto";
  const order = themesInOrder();
  const name = order[(order.indexOf(now) + (next ? 1 : 0)) % order.length];
  const [sign, text] = themes[name];
  if (next) {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    try {
      if (name === "auto") localStorage.removeItem("tarry.theme");
      else localStorage.setItem("tarry.theme", name);
    } catch {
      // Then it is forgotten with the page.
    }
    redraw();
    draw();
  }
  setText($("#theme"), sign);
  $("#theme").setAttribute("aria-label", text);
  $("#theme").title = text;
}

function dialog(title, content) {
  const node = $("#dialog");
  node.replaceChildren(el("h2", { id: "dialog-title" }, title), content);
  if (!node.open) node.showModal();
  return node;
}

function help() {
  const row = (keys, text) => [el("dt", {}, keys.map((key) => el("kbd", {}, key))), el("dd", {}, text)];
  const node = dialog("Keys and search terms", el("div", { class: "help" },
    el("dl", {},
      row(["/"], "search"), row(["Esc"], "close the record, clear the search"), row(["↑", "↓"], "move from record to record"), row(["Enter"], "open a record, pick a bar"),
      row(["←", "→"], "move along the bars of a chart"), row(["m", "d", "c"], "in a record: move, deliver now, cancel"), row(["1", "…", "8"], "the views"), row(["?"], "this")),
    el("dl", {},
      [["4711", "part of an id, a key or a topic's name"], ["@7Vbc5R5U4gfFC5", "a handle"], ["18:30", "a time; also 2026-12-24, tomorrow, in 1h"], ["topic:orders", "one topic; with partition:2 one partition"], ["recurring:yes", "records that recur; or recurring:no"],
        ["id:order-*", "a pattern of the whole id; key: likewise; a value with spaces in quotes: key:\"two words\""], ["due:<1h", "within the next hour; also due:overdue"], ["due:>30d", "later than that; also due:>2026-12-24"],
        ["due:10:00..12:00", "between two times; also due:2026-12-24T09:00..2026-12-24T10:00"], ["due:tomorrow 9:00", "a minute; between two of them: due:\"tomorrow 9:00\"..\"tomorrow 10:00\""]]
        .map(([term, text]) => [el("dt", {}, el("code", {}, term)), el("dd", {}, text)])),
    // No form: the content security policy forbids sending one, to a dialog too.
    el("div", { class: "buttons" }, el("button", { type: "button", class: "primary", data: { action: "close-help" }, on: { click: () => $("#dialog").close() } }, "Close"))));
  node.onclick = (event) => event.target === node && node.close();
}

// Reading needs the token: off loopback.  It goes on when the broker has accepted it.
function askToLogIn() {
  return new Promise((resolve) => {
    const errors = el("div", { "aria-live": "assertive" });
    const form = el("form", { class: "login", on: { submit: submit } },
      el("p", {}, "Reading needs a token here: the text of admin.read.token to look, or of admin.token to change records, too."), tokenField("Both files are in the broker's data directory."), errors,
      el("div", { class: "buttons" }, el("button", { class: "primary", type: "submit", data: { action: "confirm" } }, "Log in")));
    async function submit(event) {
      event.preventDefault();
      clearError();
      const input = $("input[name=token]", form);
      try {
        await postLogin(input.value.trim());
        // If it is the token that may also change things, it is not asked for again.
        keepToken(input.value.trim());
        const node = $("#dialog");
        node.oncancel = null;
        node.onclose = null;
        node.close();
        node.replaceChildren();
        resolve();
      } catch (error) {
        forgetToken();
        showError(errors, error.status === 401 ? "The token is wrong. It is the text of the file admin.read.token or admin.token in the broker's data directory." : errorText(error));
        input.select();
      }
    }
    const node = dialog("Log in", form);
    node.onclick = null;
    node.oncancel = (event) => event.preventDefault();
    // A browser closes a dialog at the second Escape all the same; without the form nothing could ever be read again.
    node.onclose = () => node.showModal();
    $("input", form).focus();
  });
}

function keys(event) {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.key === "Escape" && !$("#dialog").open) {
    const search = $("input[type=search]");
    if (event.target === search) {
      if (search.value) views.pending?.search("");
      else search.blur();
    } else if (panel.isOpen()) panel.close();
    else if (shown === "pending" && search.value) views.pending.search("");
    else return;
    event.preventDefault();
    return;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey || $("#dialog").open) return;
  if (event.key === "/") {
    event.preventDefault();
    if (panel.covers()) panel.close();
    $("input[type=search]").focus();
    $("input[type=search]").select();
  } else if (event.key === "?") {
    help();
  } else if (panel.isOpen() && recordKeys[event.key]) {
    $(`#panel .actions:not([hidden]) [data-action="${recordKeys[event.key]}"]`)?.click();
    event.preventDefault();
  } else if (event.key === "ArrowDown" && [document.body, $("#main")].includes(document.activeElement) && views[shown]?.focusFirst) {
    event.preventDefault();
    views[shown].focusFirst();
  } else if (/^[1-8]$/.test(event.key)) {
    location.hash = names[Number(event.key) - 1];
  }
}

function start() {
  theme(false);
  $("#theme").addEventListener("click", () => theme(true));
  $("#help").addEventListener("click", help);
  isSystemDark.addEventListener("change", redraw);
  document.addEventListener("keydown", keys);
  $(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    $("#main").focus();
  });

  // The search shows what it finds, from whichever view it is typed in.
  const search = $("input[type=search]");
  search.addEventListener("input", () => {
    views.pending ??= pendingView($('[data-view="pending"]'));
    views.pending.search(search.value, { typed: true });
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      views.pending?.focusFirst();
    }
  });

  onLogin(askToLogIn);
  for (const name of ["status", "due", "topics", "groups", "wheel", "clients"]) live.addEventListener(name, draw);
  live.addEventListener("tick", () => {
    nextDue();
    connection();
  });
  live.addEventListener("restart", restarted);
  live.addEventListener("state", () => {
    connection();
    draw();
  });
  window.addEventListener("hashchange", route);
  route();
  live.start();
}

start();
