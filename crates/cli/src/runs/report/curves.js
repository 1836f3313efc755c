"use strict";
// Draws the charts of the JSON in #data. Text is set by textContent only.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const WIDTH = 560, HEIGHT = 300, LEFT = 58, RIGHT = 10, TOP = 10, BOTTOM = 28;
  const COLOURS = ["#2a6fdb", "#e07b00", "#1f9d55", "#c9358f", "#7a52cc", "#0f9aa8", "#b5651d", "#d33f3f", "#6b7d00", "#607086"];
  const options = { smoothing: 0, log: false };

  const html = (name, attributes = {}, text = "") => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = text;
    return element;
  };
  const svg = (name, attributes = {}, text = "") => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = text;
    return element;
  };

  const format = (value) => {
    if (typeof value !== "number") return String(value);
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(3);
    return String(Number(value.toPrecision(5)));
  };

  // Exponential moving average without the bias of its start. Numbers that are not finite are left out of it.
  const smooth = (points, weight) => {
    if (weight === 0) return points;
    let mean = 0, total = 0;
    return points.map(([step, value]) => {
      if (typeof value !== "number") return [step, value];
      mean = weight * mean + (1 - weight) * value;
      total = weight * total + (1 - weight);
      return [step, mean / total];
    });
  };

  const isShown = (value) => typeof value === "number" && (!options.log || value > 0);

  // Round positions of about `count` lines.
  const ticks = (low, high, count) => {
    const rough = (high - low) / count;
    if (!(rough > 0) || !isFinite(rough)) return [low];
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
    const lines = [];
    for (let index = Math.ceil(low / step); index * step <= high && lines.length < 50; index++) lines.push(index * step);
    return lines;
  };

  class Chart {
    constructor(section, chart) {
      this.curves = chart.curves.map((curve, index) => ({ ...curve, colour: COLOURS[index % COLOURS.length], visible: true }));
      this.zoom = null;
      this.drag = null;
      this.view = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": chart.title });
      this.tip = html("div", { class: "tip", hidden: "" });
      this.reset = html("button", { type: "button", class: "reset", hidden: "" }, "Reset zoom");
      this.reset.addEventListener("click", () => this.setZoom(null));
      section.append(html("h3", {}, chart.title), this.view, this.tip, this.legend(), this.reset);
      this.view.addEventListener("pointerdown", (event) => this.start(event));
      this.view.addEventListener("pointermove", (event) => this.move(event));
      this.view.addEventListener("pointerup", (event) => this.end(event));
      this.view.addEventListener("pointercancel", () => this.leave());
      this.view.addEventListener("pointerleave", () => this.drag === null && this.leave());
      this.view.addEventListener("dblclick", () => this.setZoom(null));
      this.draw();
    }

    legend() {
      const legend = html("div", { class: "legend" });
      for (const curve of this.curves) {
        const box = html("input", { type: "checkbox" });
        box.checked = true;
        box.addEventListener("change", () => { curve.visible = box.checked; this.draw(); });
        const swatch = html("span", { class: "swatch" });
        swatch.style.background = curve.colour;
        const label = html("label");
        label.append(box, swatch, html("span", {}, curve.label));
        legend.append(label);
      }
      return legend;
    }

    setZoom(zoom) {
      this.zoom = zoom;
      this.reset.hidden = zoom === null;
      this.draw();
    }

    // The visible range, and functions between numbers and pixels.
    measure() {
      const inside = [];
      let first = Infinity, last = -Infinity;
      for (const curve of this.curves.filter((curve) => curve.visible)) {
        for (const [step] of curve.points) { first = Math.min(first, step); last = Math.max(last, step); }
      }
      if (first > last) [first, last] = [0, 1];
      if (this.zoom) [first, last] = this.zoom;
      if (first === last) [first, last] = [first - 0.5, last + 0.5];
      for (const curve of this.curves.filter((curve) => curve.visible)) {
        for (const [step, value] of smooth(curve.points, options.smoothing)) {
          if (step >= first && step <= last && isShown(value)) inside.push(value);
        }
      }
      const scale = options.log ? Math.log10 : (value) => value;
      let low = Infinity, high = -Infinity;
      for (const value of inside) { low = Math.min(low, scale(value)); high = Math.max(high, scale(value)); }
      if (low > high) [low, high] = [0, 1];
      const margin = (high - low) * 0.05 || Math.abs(low) * 0.05 || 0.5;
      [low, high] = [low - margin, high + margin];
      this.first = first;
      this.last = last;
      this.low = low;
      this.high = high;
      this.x = (step) => LEFT + (step - first) / (last - first) * (WIDTH - LEFT - RIGHT);
      this.y = (value) => HEIGHT - BOTTOM - (scale(value) - low) / (high - low) * (HEIGHT - TOP - BOTTOM);
    }

    path(points) {
      let path = "", pen = "M";
      for (const [step, value] of points) {
        if (!isShown(value)) { pen = "M"; continue; }
        path += `${pen}${this.x(step).toFixed(2)},${this.y(value).toFixed(2)}`;
        pen = "L";
      }
      return path;
    }

    draw() {
      this.measure();
      const id = `clip-${Chart.count = (Chart.count || 0) + 1}`;
      const clip = svg("clipPath", { id });
      clip.append(svg("rect", { x: LEFT, y: TOP - 2, width: WIDTH - LEFT - RIGHT, height: HEIGHT - TOP - BOTTOM + 4 }));
      const layer = svg("g", { "clip-path": `url(#${id})` });
      this.view.replaceChildren(clip);
      for (const tick of ticks(this.low, this.high, 5)) {
        const value = options.log ? 10 ** tick : tick, y = HEIGHT - BOTTOM - (tick - this.low) / (this.high - this.low) * (HEIGHT - TOP - BOTTOM);
        this.view.append(svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y, y2: y }));
        this.view.append(svg("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, format(value)));
      }
      for (const tick of ticks(this.first, this.last, 6)) {
        this.view.append(svg("text", { x: this.x(tick), y: HEIGHT - 8, "text-anchor": "middle" }, format(tick)));
      }
      for (const curve of this.curves.filter((curve) => curve.visible)) this.drawCurve(layer, curve);
      this.cursor = svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
      this.band = svg("rect", { class: "zoom", y: TOP, height: HEIGHT - TOP - BOTTOM, width: 0, visibility: "hidden" });
      this.view.append(layer, this.cursor, this.band);
    }

    drawCurve(layer, curve) {
      if (options.smoothing > 0) {
        layer.append(svg("path", { class: "curve raw", stroke: curve.colour, d: this.path(curve.points) }));
      }
      const line = smooth(curve.points, options.smoothing);
      layer.append(svg("path", { class: "curve", stroke: curve.colour, d: this.path(line) }));
      if (line.length <= 60) {
        for (const [step, value] of line) if (isShown(value)) layer.append(svg("circle", { cx: this.x(step), cy: this.y(value), r: 2.2, fill: curve.colour }));
      }
      // Numbers that are not finite are triangles at the bottom.
      for (const [step, value] of curve.points) {
        if (typeof value === "number") continue;
        const x = this.x(step), y = HEIGHT - BOTTOM;
        const mark = svg("path", { class: "odd", fill: curve.colour, d: `M${x - 4},${y}L${x + 4},${y}L${x},${y - 7}Z` });
        mark.append(svg("title", {}, `${curve.label}: ${value} at step ${step}`));
        layer.append(mark);
      }
    }

    // The step below the pointer.
    step(event) {
      const box = this.view.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width * WIDTH;
      const part = (x - LEFT) / (WIDTH - LEFT - RIGHT);
      return this.first + Math.min(1, Math.max(0, part)) * (this.last - this.first);
    }

    start(event) {
      if (event.button !== 0) return;
      this.drag = this.step(event);
      if (event.isTrusted) this.view.setPointerCapture(event.pointerId);
    }

    move(event) {
      const step = this.step(event);
      if (this.drag !== null) {
        const [low, high] = [Math.min(this.drag, step), Math.max(this.drag, step)];
        this.band.setAttribute("x", this.x(low));
        this.band.setAttribute("width", this.x(high) - this.x(low));
        this.band.setAttribute("visibility", "visible");
      }
      this.hover(step, event);
    }

    end(event) {
      if (this.drag === null) return;
      const [one, other] = [this.drag, this.step(event)].sort((a, b) => a - b);
      this.drag = null;
      const isDrag = this.x(other) - this.x(one) > 5;
      if (isDrag) this.setZoom([one, other]);
      else this.band.setAttribute("visibility", "hidden");
    }

    leave() {
      this.drag = null;
      this.tip.hidden = true;
      this.cursor.setAttribute("visibility", "hidden");
      this.band.setAttribute("visibility", "hidden");
    }

    hover(step, event) {
      const rows = [];
      let nearest = null;
      for (const curve of this.curves.filter((curve) => curve.visible)) {
        const index = closest(curve.points, step);
        if (index < 0) continue;
        const [at, value] = curve.points[index];
        if (at < this.first || at > this.last) continue;
        if (nearest === null || Math.abs(at - step) < Math.abs(nearest - step)) nearest = at;
        const smoothed = smooth(curve.points.slice(0, index + 1), options.smoothing)[index][1];
        const extra = options.smoothing > 0 ? ` (smoothed ${format(smoothed)})` : "";
        rows.push({ at, curve, text: `${format(value)}${extra}` });
      }
      if (nearest === null) return;
      this.cursor.setAttribute("x1", this.x(nearest));
      this.cursor.setAttribute("x2", this.x(nearest));
      this.cursor.setAttribute("visibility", "visible");
      this.tip.replaceChildren(html("div", {}, `step ${nearest}`));
      for (const { at, curve, text } of rows.slice(0, 20)) {
        const where = at === nearest ? "" : ` (step ${at})`;
        const row = html("div", {}, `${curve.label}: ${text}${where}`);
        row.style.borderLeft = `4px solid ${curve.colour}`;
        row.style.paddingLeft = "4px";
        this.tip.append(row);
      }
      this.tip.hidden = false;
      const box = this.view.parentElement.getBoundingClientRect();
      const x = event.clientX - box.left, isRight = x > box.width / 2;
      this.tip.style.left = isRight ? "" : `${x + 14}px`;
      this.tip.style.right = isRight ? `${box.width - x + 14}px` : "";
      this.tip.style.top = `${event.clientY - box.top + 14}px`;
    }
  }

  // The index of the point whose step is closest. Steps ascend.
  const closest = (points, step) => {
    let low = 0, high = points.length - 1;
    if (high < 0) return -1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (points[middle][0] <= step) low = middle; else high = middle;
    }
    return Math.abs(points[low][0] - step) <= Math.abs(points[high][0] - step) ? low : high;
  };

  const charts = [...document.querySelectorAll("[data-chart]")].map((section) => new Chart(section, data.charts[section.dataset.chart]));
  const redraw = () => charts.forEach((chart) => chart.draw());

  const control = (text, input, change) => {
    const label = html("label", {}, `${text} `);
    input.addEventListener("input", () => { change(input); redraw(); });
    label.append(input);
    document.getElementById("controls").append(label);
  };
  control("Smoothing", html("input", { id: "smoothing", type: "range", min: "0", max: "0.99", step: "0.01", value: "0" }), (input) => { options.smoothing = Number(input.value); });
  control("Logarithmic", html("input", { id: "log", type: "checkbox" }), (input) => { options.log = input.checked; });
  document.getElementById("controls").append(html("span", { class: "note" }, "Drag to zoom, double-click to reset."));

  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const isDark = (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    root.dataset.theme = isDark ? "light" : "dark";
  });
})();
