// Charts on Chart.js: stacked bars of what is due, and lines over time.  Their colours are those of the
// style sheet, so light and dark need nothing here but to draw again.

import { $, el, setText, visible } from "./dom.js";
import { compact, integer, minuteOf, timeOf } from "./format.js";

const Chart = window.Chart;

Chart.defaults.animation = false;
Chart.defaults.responsive = true;
Chart.defaults.maintainAspectRatio = false;
Chart.defaults.font.size = 11;
Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
Chart.defaults.plugins.legend.display = false;
Chart.defaults.plugins.tooltip.enabled = false;
Chart.defaults.elements.bar.borderWidth = 0;

const all = new Set();

export function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// After the theme has changed.
export function redraw() {
  for (const chart of all) chart.paint();
}

function axis(extra = {}) {
  return {
    border: { display: false },
    ticks: { color: css("--muted"), padding: 4, maxRotation: 0, ...extra.ticks },
    grid: { color: css("--grid"), drawTicks: false, drawBorder: false, ...extra.grid },
    ...Object.fromEntries(Object.entries(extra).filter(([name]) => !["ticks", "grid"].includes(name))),
  };
}

// Beside the pointer, inside the chart's own box; made of text nodes.
class Tip {
  constructor(holder) {
    this.node = el("div", { class: "tip", hidden: true });
    this.holder = holder;
    holder.append(this.node);
  }

  show(x, head, rows) {
    this.node.replaceChildren(
      el("div", { class: "tip-head" }, head),
      ...rows.map(([colour, name, value]) => el("div", { class: "tip-row" },
        el("span", { class: "swatch", style: { background: `var(${colour})` } }), el("span", { class: "tip-name" }, visible(name)), el("b", {}, value))));
    this.node.hidden = false;
    const width = this.holder.clientWidth;
    const own = this.node.offsetWidth;
    this.node.style.left = `${Math.max(0, Math.min(width - own, x > width / 2 ? x - own - 12 : x + 12))}px`;
  }

  hide() {
    this.node.hidden = true;
  }
}

// On a logarithmic scale a bar has the height of the logarithm of its sum; the topics divide that height by their shares.  So
// one record is seen beside a million, and the share of a topic in a bar is still the share of its colour.
const logarithm = (n) => Math.log10(1 + n);

// The numbers of records due in each of a row of times, stacked by topic.  The arrow keys move along the bars, Enter picks one.
export class Bars {
  constructor({ label, bucketText, tickText, onPick }) {
    this.bucketText = bucketText;
    this.tickText = tickText;
    this.label = label;
    this.data = null;
    this.picked = null;
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.node = el("div", {
      class: "chart bars", tabindex: 0, role: "slider", "aria-label": label, "aria-orientation": "horizontal", "aria-valuemin": 0, "aria-valuemax": 0, "aria-valuenow": 0,
      on: {
        keydown: (event) => this.#key(event, onPick),
        blur: () => this.#point(null),
        pointerleave: () => this.#point(null),
      },
    }, this.canvas);
    this.tip = new Tip(this.node);
    this.chart = new Chart(this.canvas, {
      type: "bar",
      data: { labels: [], datasets: [] },
      options: {
        interaction: { mode: "index", intersect: false, axis: "x" },
        onHover: (_, found) => this.#point(found.length ? found[0].index : null),
        onClick: (_, found) => found.length && this.#pick(found[0].index, onPick),
        events: ["mousemove", "mouseout", "click", "touchstart"],
        datasets: { bar: { barPercentage: 1, categoryPercentage: 0.86, minBarLength: 0 } },
      },
    });
    all.add(this);
  }

  // {from, until, bucket_ms, series: [{name, colour, counts}]}, logarithmic or not; the last bar ends at `until`.
  update(data, isLogarithmic) {
    this.data = data;
    this.isLogarithmic = isLogarithmic;
    const length = data.series[0]?.counts.length ?? 0;
    this.sums = Array.from({ length }, (_, place) => data.series.reduce((sum, { counts }) => sum + counts[place], 0));
    this.node.setAttribute("aria-valuemax", Math.max(0, length - 1));
    if (this.picked === null) this.#sayAll();
    this.paint();
  }

  paint() {
    if (!this.data) return;
    const { chart, data, sums, isLogarithmic } = this;
    const height = (count, place) => (isLogarithmic ? (sums[place] ? logarithm(sums[place]) * count / sums[place] : 0) : count);
    chart.data.labels = sums.map((_, place) => place);
    // The list is kept: a chart that gets new objects each second would forget what is pointed at.
    data.series.forEach((series, place) => {
      const shade = (context) => this.#shade(css(series.colour), context.dataIndex);
      chart.data.datasets[place] = Object.assign(chart.data.datasets[place] ?? {}, {
        label: series.name, data: series.counts.map(height), stack: "due", backgroundColor: shade, hoverBackgroundColor: shade,
      });
    });
    chart.data.datasets.length = data.series.length;
    const most = Math.max(1, ...sums);
    chart.options.scales = {
      x: axis({
        stacked: true, grid: { display: false },
        ticks: { autoSkip: false, callback: (_, place) => this.#tick(place) },
      }),
      y: axis({
        stacked: true, beginAtZero: true, max: isLogarithmic ? logarithm(most) * 1.05 : undefined, suggestedMax: isLogarithmic ? undefined : Math.max(4, most),
        afterBuildTicks: isLogarithmic ? (scale) => { scale.ticks = decades(most).map((n) => ({ value: logarithm(n), count: n })); } : undefined,
        ticks: {
          maxTicksLimit: 4, precision: 0,
          callback: (value) => compact(isLogarithmic ? Math.round(10 ** value - 1) : value),
        },
      }),
    };
    chart.update("none");
  }

  // Where there is room for half of the labels only, every other one is shown.
  #tick(place) {
    const { from, bucket_ms } = this.data;
    const text = this.tickText(place, from + place * bucket_ms);
    // At the right edge there is no room for half of a label.
    if (place && (this.sums.length - 1 - place) / this.sums.length * this.node.clientWidth < 14) return "";
    if (!text || this.node.clientWidth >= 220) return text ?? "";
    let before = 0;
    for (let each = 0; each < place; ++each) if (this.tickText(each, from + each * bucket_ms)) ++before;
    return before % 2 ? "" : text;
  }

  #shade(colour, place) {
    return this.picked === null || this.picked === place ? colour : `color-mix(in srgb, ${colour} 45%, transparent)`;
  }

  #timesOf(place) {
    const from = this.data.from + place * this.data.bucket_ms;
    return [from, Math.min(from + this.data.bucket_ms, this.data.until)];
  }

  #point(place) {
    if (this.data && place !== null && place >= 0 && place < this.sums.length) {
      const times = this.#timesOf(place);
      const rows = this.data.series.map(({ name, colour, counts }) => [colour, name, integer(counts[place])]).filter((_, i) => this.data.series[i].counts[place] > 0);
      const x = this.chart.scales.x?.getPixelForValue(place) ?? 0;
      this.tip.show(x, `${this.bucketText(...times)} · ${integer(this.sums[place])}`, rows);
      this.node.setAttribute("aria-valuenow", place);
      this.node.setAttribute("aria-valuetext", `${this.bucketText(...times)}: ${integer(this.sums[place])} due${rows.map(([, name, value]) => `, ${visible(name)} ${value}`).join("")}`);
    } else {
      place = null;
      this.tip.hide();
      if (this.data) this.#sayAll();
    }
    if (this.picked !== place) {
      this.picked = place;
      this.chart.update("none");
    }
  }

  // Until a bar is chosen; else a screen reader says the number of a bar that nobody has chosen.
  #sayAll() {
    this.node.setAttribute("aria-valuetext", `${integer(this.sums.reduce((sum, count) => sum + count, 0))} due in all; the arrow keys choose a bar`);
  }

  #pick(place, onPick) {
    onPick(...this.#timesOf(place));
  }

  #key(event, onPick) {
    if (!this.data || event.ctrlKey || event.metaKey || event.altKey) return;
    const last = this.sums.length - 1;
    const now = this.picked ?? -1;
    const to = { ArrowRight: now + 1, ArrowUp: now + 1, ArrowLeft: Math.max(0, now - 1), ArrowDown: Math.max(0, now - 1), Home: 0, End: last }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      this.#point(Math.min(last, to));
    } else if ((event.key === "Enter" || event.key === " ") && this.picked !== null) {
      event.preventDefault();
      this.#pick(this.picked, onPick);
    } else if (event.key === "Escape" && this.picked !== null) {
      event.stopPropagation();
      this.#point(null);
    }
  }
}

function decades(most) {
  const found = [0];
  for (let n = 1; n <= most; n *= 10) found.push(n);
  const step = Math.ceil((found.length - 1) / 4);
  return found.filter((_, place) => place === 0 || (found.length - 1 - place) % step === 0);
}

const gap_ms = 5000;
// The lengths of time that are shown, in seconds, and between the ticks on them.
const lengths = [60, 120, 300, 600, 3600];
const steps = [15, 30, 60, 120, 300, 600, 1200];
// The longest that somebody wants to see, of all lines.
let most_ms = 600_000;
export const shownLength = () => most_ms;
export function showLength(ms) {
  most_ms = ms;
}
const label_width = 62;  // With the space to the next one.

// Round times of the clock, as many as there is room for.
function timeTicks(from, to, width) {
  const step = 1000 * (steps.find((seconds) => (to - from) / (seconds * 1000) * label_width <= width) ?? steps.at(-1));
  const ticks = [];
  // At the edges there is no room for half of a label.
  const edge = (to - from) * label_width / 2 / Math.max(1, width);
  for (let at = Math.ceil((from + edge) / step) * step; at <= to - edge; at += step) ticks.push({ value: at });
  return { ticks, text: step < 60_000 ? timeOf : minuteOf };
}

// Lines over the last minutes, or the last hour: series are [{name, colour, read(point), fill}].
export class Lines {
  constructor({ label, series, text = compact, isLogarithmic = false, least = 1 }) {
    Object.assign(this, { series, text, isLogarithmic, least, label, points: [] });
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.node = el("div", { class: "chart lines", role: "img", "aria-label": label, on: { pointerleave: () => this.tip.hide() } }, this.canvas);
    this.tip = new Tip(this.node);
    this.chart = new Chart(this.canvas, {
      type: "line",
      data: { datasets: [] },
      options: {
        parsing: false, normalized: true, spanGaps: false,
        interaction: { mode: "index", intersect: false, axis: "x" },
        elements: { point: { radius: 0, hoverRadius: 3, hitRadius: 0 }, line: { borderWidth: 1.5, tension: 0 } },
        onHover: (_, found) => this.#point(found),
        events: ["mousemove", "mouseout", "touchstart"],
      },
    });
    all.add(this);
  }

  update(history, now) {
    const points = history.filter(({ at }) => at >= now - most_ms);
    // No line is drawn over a time that nobody watched.
    this.points = points.flatMap((point, place) => (place && !point.follows && point.at - points[place - 1].at > gap_ms ? [{ at: points[place - 1].at + 1, isGap: true }, point] : [point]));
    this.now = now;
    this.paint();
  }

  #point(found) {
    const point = found.length ? this.points[found[0].index] : null;
    if (!point || point.isGap) return this.tip.hide();
    this.tip.show(this.chart.scales.x.getPixelForValue(point.at), timeOf(point.at),
      this.series.map(({ name, colour, read }) => [colour, name, read(point) === null ? "–" : this.text(read(point))]));
  }

  paint() {
    if (!this.now) return;
    const { chart, points, now } = this;
    const floor = this.least;
    this.series.forEach(({ name, colour, read, fill }, place) => {
      const paintOf = css(colour);
      chart.data.datasets[place] = Object.assign(chart.data.datasets[place] ?? {}, {
        label: name, borderColor: paintOf, pointHoverBackgroundColor: paintOf, fill: fill ? "origin" : false,
        backgroundColor: `color-mix(in srgb, ${paintOf} 14%, transparent)`,
        data: points.map((point) => {
          const y = point.isGap ? null : read(point);
          return { x: point.at, y: y === null || y === undefined ? NaN : this.isLogarithmic ? Math.log10(Math.max(y, floor)) : y };
        }),
      });
    });
    const values = points.flatMap((point) => this.series.map(({ read }) => read(point) ?? 0));
    const most = Math.max(floor, ...values);
    const seen = points.length ? Math.max(60_000, now - points[0].at) : most_ms;
    const shown = (lengths.find((seconds) => seconds * 1000 >= Math.min(seen, most_ms)) ?? lengths.at(-1)) * 1000;
    const { ticks, text } = timeTicks(now - shown, now, this.node.clientWidth - 50);
    chart.options.scales = {
      x: axis({
        type: "linear", min: now - shown, max: now, grid: { display: false },
        afterBuildTicks: (scale) => { scale.ticks = ticks; },
        ticks: { autoSkip: false, callback: (value) => text(value) },
      }),
      y: axis(this.isLogarithmic ? {
        min: Math.log10(floor), max: Math.ceil(Math.log10(most * 1.01)),
        afterBuildTicks: (scale) => {
          scale.ticks = [];
          const [low, high] = [Math.log10(floor), Math.ceil(Math.log10(most * 1.01))];
          const step = Math.max(1, Math.ceil((high - low) / 4));
          for (let power = high; power >= low; power -= step) scale.ticks.unshift({ value: power });
        },
        ticks: { callback: (value) => this.text(10 ** value) },
      } : { beginAtZero: true, suggestedMax: most, ticks: { maxTicksLimit: 4, callback: (value) => this.text(value) } }),
    };
    chart.update("none");
    const last = points.at(-1);
    const summary = last ? this.series.map(({ name, read }) => `${name} ${read(last) === null ? "unknown" : this.text(read(last))}`).join(", ") : "no figures yet";
    this.node.setAttribute("aria-label", `${this.label}, now: ${summary}`);
  }
}

// The names and colours of what a chart shows; entries are [{name, colour, value}].
export function legend(node, entries) {
  const wanted = entries.map(({ name, colour }) => `${colour} ${name}`).join("\n");
  // A new value leaves the entry, and the focus on it, where they are.
  if (node.shown !== wanted) {
    node.shown = wanted;
    node.replaceChildren(...entries.map(({ name, colour, value, pick }) => {
      const parts = [el("span", { class: "swatch", style: { background: `var(${colour})` } }), el("span", { class: "legend-name", title: visible(name) }, visible(name)),
        value === undefined ? null : el("span", { class: "legend-value" })];
      return el("li", {}, pick ? el("button", { type: "button", class: "legend-pick", data: { topic: name }, on: { click: pick } }, parts) : parts);
    }));
  }
  entries.forEach(({ value }, place) => value !== undefined && setText($(".legend-value", node.children[place]), value));
}
