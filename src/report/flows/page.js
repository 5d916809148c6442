// The player of the page that `tenon eval --flows --html` writes. Its data are the JSON in #data (flows_page.c says how).
"use strict";
(() => {
  const $ = id => document.getElementById(id), D = JSON.parse($("data").textContent);
  const W = D.width, H = D.height, S = W * H, BINS = 17, ZERO = 8, TRAIL = 5, NONE = 255;
  const bytes = text => text === null ? null : Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const value = q => q === NONE ? NaN : (q / 127 - 1);

  // A sample's flows: first step, number of steps, how it landed, and where its numbers begin: x, y, z, energy of each step.
  function flows_of(b) {
    const list = [];
    for (let i = 0; i < b.length;) {
      const f = { slot: b[i] | b[i + 1] << 8 | b[i + 2] << 16, first: b[i + 3] | b[i + 4] << 8, n: b[i + 5] | b[i + 6] << 8,
                  landed: b[i + 7] & 3, plane: b[i + 7] >> 2, at: i + 8 };
      f.last = f.first + f.n - 1;
      list.push(f);
      i += 8 + 4 * f.n;
    }
    return list;
  }
  const samples = D.samples.map(s => {
    const b = bytes(s.paths);
    return { b, flows: flows_of(b), input: bytes(s.input), output: bytes(s.output), target: bytes(s.target) };
  });

  // --- colours: blue below zero, orange above, the background's own colour at zero ---
  let line = [], cell = [], text = "";
  function colours() {
    const dark = matchMedia("(prefers-color-scheme:dark)").matches, low = dark ? [90, 165, 255] : [20, 80, 210],
          high = dark ? [255, 178, 62] : [196, 64, 6], none = dark ? [24, 30, 38] : [241, 243, 246],
          grey = dark ? [84, 94, 106] : [186, 194, 203];
    const mix = (a, i) => a.map((x, k) => Math.round(x + Math.abs(i - ZERO) / ZERO * ((i < ZERO ? low : high)[k] - x)));
    cell = Array.from({ length: BINS }, (_, i) => mix(none, i));
    line = Array.from({ length: BINS }, (_, i) => "rgb(" + mix(grey, i) + ")");
    text = dark ? "#9198a1" : "#656d76";
  }
  const bin = x => Number.isNaN(x) ? -1 : ZERO + Math.round(Math.max(-1, Math.min(1, x)) * ZERO);

  // --- surfaces ---
  function paint(id, at, columns) { // at(i): value of cell i, row by row; NaN: no cell
    const c = $(id), g = c.getContext("2d"), image = g.createImageData(columns, H);
    for (let i = 0; i < columns * H; i++) {
      const k = bin(at(i));
      if (k >= 0) image.data.set([...cell[k], 255], 4 * i);
    }
    g.clearRect(0, 0, c.width, c.height);
    g.putImageData(image, 0, 0);
  }
  // Two planes stand beside each other.
  function surface(id, q) {
    if (!q || !$(id)) return;
    const planes = q.length / S;
    paint(id, i => { const x = i % (planes * W), y = (i - x) / (planes * W); return value(q[(x >= W) * S + y * W + x % W]); }, planes * W);
  }
  const landing = [0, 1].map(() => ({ count: new Float64Array(S), sum: new Float64Array(S) }));
  function land(s, now) {
    for (const p of landing) p.count.fill(0), p.sum.fill(0);
    let n = 0;
    for (const f of s.flows) {
      if (!f.landed || f.last > now) continue;
      const i = f.at + 4 * (f.n - 1), [u, v, e] = [0, 1, 3].map(k => value(s.b[i + k]));
      n++;
      if (Number.isNaN(u + v + e)) continue;
      const c = Math.round((v + 1) / 2 * (H - 1)) * W + Math.round((u + 1) / 2 * (W - 1)), p = landing[f.plane];
      p.count[c]++, p.sum[c] += e;
    }
    landing.forEach((p, k) => paint("plane" + k, i => p.count[i] ? p.sum[i] / p.count[i] : NaN, W));
    return n;
  }

  // --- the box: a parallel projection, c + u a + v b + z d ---
  const box = $("box"), g = box.getContext("2d");
  let yaw = 0.5, pitch = 0.3, view;
  function look() {
    const ratio = devicePixelRatio || 1, w = box.clientWidth, h = Math.round(Math.min(460, w * 0.55));
    if (box.width !== Math.round(w * ratio)) box.width = Math.round(w * ratio), box.height = Math.round(h * ratio), box.style.height = h + "px";
    const long = Math.max(W, H), [cy, sy, cp, sp] = [Math.cos(yaw), Math.sin(yaw), Math.cos(pitch), Math.sin(pitch)];
    const to = (x, y, z) => [x * cy + z * sy, y * cp - (z * cy - x * sy) * sp]; // z: away from the viewer
    const axes = [to(0, 0, 0.55 * W / long), to(0, 0.55 * H / long, 0), to(1.05, 0, 0)];
    const span = i => axes.reduce((sum, p) => sum + Math.abs(p[i]), 0), k = Math.min((w / 2 - 30) / span(0), (h / 2 - 26) / span(1));
    const [a, b, d] = axes.map(p => [k * p[0], k * p[1]]);
    view = { w, h, ratio, a, b, d };
  }
  const px = (u, v, z) => view.w / 2 + u * view.a[0] + v * view.b[0] + z * view.d[0];
  const py = (u, v, z) => view.h / 2 + u * view.a[1] + v * view.b[1] + z * view.d[1];
  function plane(id, z) {
    const { a, b, ratio: r } = view, du = 2 / (W - 1), dv = 2 / (H - 1), u = -1 - du / 2, v = -1 - dv / 2;
    g.setTransform(r * du * a[0], r * du * a[1], r * dv * b[0], r * dv * b[1], r * px(u, v, z), r * py(u, v, z));
    g.globalAlpha = 0.8;
    g.drawImage($(id), 0, 0);
    g.globalAlpha = 1;
    g.setTransform(r, 0, 0, r, 0, 0);
  }
  function edges(start) {
    g.strokeStyle = text, g.lineWidth = 0.6;
    g.beginPath();
    const edge = (p, q) => { g.moveTo(px(...p), py(...p)), g.lineTo(px(...q), py(...q)); };
    for (const z of [-1, start, 1])
      for (const i of [-1, 1]) edge([-1, i, z], [1, i, z]), edge([i, -1, z], [i, 1, z]);
    for (const i of [-1, 1])
      for (const k of [-1, 1]) edge([i, k, -1], [i, k, 1]);
    g.stroke();
    g.fillStyle = text, g.font = "11px system-ui,sans-serif", g.textAlign = "center";
    const name = (s, ...p) => g.fillText(s, px(...p), py(...p) + 16), show = z => D.depth ? +((z + 1) / 2 * D.depth).toPrecision(3) : z;
    name("exit, z = " + show(-1), 0, 1.1, -1), name("input, z = " + show(start), 0, 1.1, start), name("exit, z = " + show(1), 0, 1.1, 1);
    name("x", 1.15, 1, 1), name("y", -1.1, 0, -1);
  }
  // The trail of a flow behind its place now, into the path of its colour; a landing's trail runs in.
  function trail(s, f, now, into, dots, jumps) {
    if (f.landed === 2 && now >= f.last) { // projected: from its place to the exit
      const i = f.at + 4 * (f.n - 1), [u, v, z] = [0, 1, 2].map(k => value(s.b[i + k])), exit = f.plane ? 1 : -1;
      jumps.moveTo(px(u, v, z), py(u, v, z)), jumps.lineTo(px(u, v, exit), py(u, v, exit));
    }
    const head = Math.min(now, f.last), tail = Math.max(f.first, now - TRAIL);
    if (now < f.first || tail >= head && now > f.last) return;
    const place = t => {
      const i = Math.min(Math.floor(t), f.last), j = Math.min(i + 1, f.last), r = t - i, at = f.at + 4 * (i - f.first), to = f.at + 4 * (j - f.first);
      return [0, 1, 2].map(k => (1 - r) * value(s.b[at + k]) + r * value(s.b[to + k]));
    };
    const k = bin(value(s.b[f.at + 4 * (Math.ceil(head) - f.first) + 3]));
    if (k < 0) return;
    let joined = false;
    for (let t = tail;; t = Math.min(head, Math.floor(t) + 1)) {
      const p = place(t), ok = !p.some(Number.isNaN);
      if (ok) joined ? into[k].lineTo(px(...p), py(...p)) : into[k].moveTo(px(...p), py(...p));
      joined = ok;
      if (t >= head) { if (ok && now <= f.last) dots[k].rect(px(...p) - 1.2, py(...p) - 1.2, 2.4, 2.4); break; }
    }
  }
  function draw_box(s, now) {
    const into = Array.from({ length: BINS }, () => new Path2D()), dots = into.map(() => new Path2D()), jumps = new Path2D();
    const start = s.flows.length ? value(s.b[s.flows[0].at + 2]) || 0 : 0, only_ink = $("ink").checked;
    g.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
    g.clearRect(0, 0, view.w, view.h);
    g.imageSmoothingEnabled = false;
    plane("plane0", -1), plane("input", start), plane("plane1", 1);
    edges(start);
    for (const f of s.flows)
      if (!only_ink || f.slot >= S || Math.abs(value(s.input[f.slot])) > 0.04) trail(s, f, now, into, dots, jumps);
    g.strokeStyle = line[ZERO], g.lineWidth = 1;
    g.setLineDash([2, 3]), g.stroke(jumps), g.setLineDash([]);
    for (const i of [...into.keys()].sort((a, b) => Math.abs(a - ZERO) - Math.abs(b - ZERO))) { // strong ones last
      g.strokeStyle = g.fillStyle = line[i], g.lineWidth = 1;
      g.stroke(into[i]), g.fill(dots[i]);
    }
  }

  // --- exits by step ---
  function draw_exits(s, now) {
    const c = $("exits"), e = c.getContext("2d"), n = new Array(D.steps + 1).fill(0), projected = n.slice(), r = devicePixelRatio || 1;
    const w = c.clientWidth, h = 90;
    if (c.width !== Math.round(w * r)) c.width = Math.round(w * r), c.height = h * r;
    for (const f of s.flows) if (f.landed) (f.landed === 2 ? projected : n)[f.last]++;
    const most = Math.max(1, ...n.map((x, i) => x + projected[i])), step = (w - 10) / (D.steps + 1);
    e.setTransform(r, 0, 0, r, 0, 0);
    e.clearRect(0, 0, w, h);
    n.forEach((x, i) => {
      const y = 68 * x / most, p = 68 * projected[i] / most;
      e.globalAlpha = i <= now ? 1 : 0.3;
      e.fillStyle = line[BINS - 1], e.fillRect(5 + i * step, 72 - y, Math.max(1, step - 1), y);
      e.fillStyle = line[ZERO], e.fillRect(5 + i * step, 72 - y - p, Math.max(1, step - 1), p);
    });
    e.globalAlpha = 1, e.fillStyle = text, e.font = "11px system-ui,sans-serif";
    e.textAlign = "left", e.fillText("step 0", 5, 86), e.textAlign = "right", e.fillText(D.steps, w - 5, 86);
  }

  // --- playing ---
  let now = 0, playing = false, then = 0, shown = -1;
  const clock = $("step"), end = () => samples[shown].flows.reduce((m, f) => Math.max(m, f.last), 1);
  function draw() {
    const s = samples[shown], landed = land(s, now + 1e-9);
    look();
    draw_box(s, now);
    draw_exits(s, now);
    clock.value = now;
    $("now").textContent = Math.floor(now + 1e-9) + " of " + D.steps + ", " + landed + " landed";
    $("play").textContent = playing ? "Pause" : "Play";
  }
  function choose(k) {
    shown = k;
    const s = samples[k];
    surface("input", s.input), surface("output", s.output), surface("target", s.target);
    $("caption").textContent = D.samples[k].caption;
    draw();
  }
  function tick(at) {
    if (!playing) return;
    const last = end();
    now = Math.min(last, now + Math.max(0, Math.min(0.1, (at - then) / 1000)) * Math.max(1.5, last / 7));
    then = at;
    if (now >= last) playing = false;
    draw();
    requestAnimationFrame(tick);
  }
  function play(on) {
    if (on && now >= end()) now = 0;
    playing = on, then = performance.now();
    on ? requestAnimationFrame(tick) : draw();
  }
  $("play").onclick = () => play(!playing);
  clock.oninput = () => { playing = false, now = +clock.value, draw(); };
  $("sample").onchange = () => choose(+$("sample").value);
  $("ink").onchange = draw;
  box.onpointerdown = p => box.setPointerCapture(p.pointerId);
  box.onpointermove = p => {
    if (!p.buttons) return;
    yaw += p.movementX * 0.008, pitch = Math.max(-1.5, Math.min(1.5, pitch + p.movementY * 0.008));
    draw();
  };
  matchMedia("(prefers-color-scheme:dark)").onchange = () => { colours(), choose(shown); };
  addEventListener("resize", draw);
  addEventListener("keydown", k => { if (k.key === " " && k.target === document.body) k.preventDefault(), play(!playing); });
  colours();
  const asked = new URLSearchParams(location.hash.slice(1)); // #sample=1&step=4: a link to one moment
  const first = Math.max(0, Math.min(samples.length - 1, asked.get("sample") | 0));
  $("sample").value = first;
  now = Math.max(0, Math.min(D.steps, +asked.get("step") || 0));
  choose(first);
  if (!asked.has("step") && !matchMedia("(prefers-reduced-motion:reduce)").matches) play(true);
})();
