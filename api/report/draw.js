const lineHeight = 15;

/** What stands in a box: lines of text. The first one is bold where it names a fusion. */
function linesOf(report, item) {
  if (item.kind === 'layer')
    return [layerTitle(report, item.layer), `${item.layer.after.length} kernels or views`];
  if (item.kind === 'fold') return [foldTitle(report, item.fold)];
  const node = item.node;
  const isGroup = node.fusion && node.side === 'after';
  const ops = node.ops.map(opName).join(' \u2192 ');
  const place = placeOf(report, node);
  return (isGroup ? [node.fusion, shortened(ops, 46), shortened(place, 40)] :
                    [shortened(ops, 40), shortened(place, 40)])
      .filter(line => line !== '');
}

function layerTitle(report, layer) { return layer.name; }

function measureItem(report, item) {
  if (item.kind === 'fold' || (item.kind === 'layer' && !item.isShut)) {
    const text = frameTitle(report, item);
    return [text.length * charWidth + 60, 0];
  }
  const lines = linesOf(report, item);
  return [
    Math.max(60, Math.max(...lines.map(line => line.length)) * charWidth + 22), lines.length * lineHeight + 11
  ];
}

function frameTitle(report, item) {
  if (item.kind === 'layer') return item.layer.name;
  const {fold} = item;
  const every = fold.layers > 1 ? ` (${fold.times} times ${fold.layers} layers)` : '';
  return `${foldTitle(report, fold)}: ${fold.times * fold.layers} layers${every || ', all alike'}`;
}

/** A pane with one side's graph, which can be zoomed, dragged, unfolded and searched. */
class Pane {
  constructor(report, side, host, actions) {
    Object.assign(this, {report, side, host, actions, scale: 1, x: 0, y: 0, marks: new Map()});
    this.layer = svg('g');
    this.canvas = svg('svg', {role: 'img', 'aria-label': `The graph ${side} fusion`}, this.layer);
    const data = report.data;
    const counts =
        [data.kernels && `${data.kernels[side]} kernels`, data.bytes && bytesText(data.bytes[side])];
    const zoom = (text, title, act) => element('button', {type: 'button', title, onclick: act}, text);
    host.append(
        element(
            'div', {class: 'panehead'}, element('h2', {}, side === 'before' ? 'Before' : 'After'),
            element('span', {class: 'quiet'}, counts.filter(Boolean).join(' \u00b7 ')),
            element('span', {class: 'grow'}), zoom('\u2212', 'Zoom out', () => this.zoomBy(1 / 1.3)),
            zoom('+', 'Zoom in', () => this.zoomBy(1.3)), zoom('Fit', 'Show all', () => this.fit(true))),
        this.canvas);
    this.listen();
  }

  /** Lays out and draws what is open. */
  draw(open) {
    this.marks.clear();
    this.layer.replaceChildren();
    const most = 5000;
    this.tree = buildTree(this.report, this.side, open);
    const nodes = this.report[this.side].length, drawn = this.tree.root.children.length;
    if (nodes === 0 || drawn > most) {
      const why = nodes === 0 ? 'This report holds no graph.'
                              : `${drawn} ops that repeat nowhere are too many to draw; the tables list what fused.`;
      this.layer.append(svg('text', {x: 20, y: 30, class: 'sub'}, why));
      this.tree.root.w = 400;
      this.tree.root.h = 60;
      return;
    }
    layoutTree(this.tree, item => measureItem(this.report, item));
    this.drawFrame(this.tree.root, this.layer);
  }

  drawFrame(frame, into) {
    for (const points of frame.lines) into.append(svg('path', {class: 'edge', d: curve(points)}));
    for (const child of frame.children) {
      const box = svg('g', {transform: `translate(${child.x.toFixed(1)} ${child.y.toFixed(1)})`});
      into.append(box);
      if (child.children && !child.isShut) {
        this.drawFrameBox(child, box);
        this.drawFrame(child, box);
        box.append(this.frameHandle(child));
      } else {
        this.drawBox(child, box);
      }
    }
  }

  drawFrameBox(item, box) {
    box.setAttribute('class', `frame ${item.kind}`);
    if (item.kind === 'fold' && !item.isOpen)
      for (const shift of [6, 3])
        box.append(svg('rect', {class: 'stack', x: shift, y: shift, width: item.w, height: item.h, rx: 8}));
    box.append(svg('rect', {class: 'frame', width: item.w, height: item.h, rx: 8}));
  }

  /** Unfolds, folds or shuts. */
  frameHandle(item) {
    const isFolded = item.kind === 'fold' && !item.isOpen;
    const act = () =>
        item.kind === 'fold' ? this.actions.toggle(item.key, isFolded) : this.actions.toggle(item.key, false);
    return svg(
        'g', {class: 'handle', onclick: act}, svg('rect', {
          x: 4,
          y: 3,
          width: (frameTitle(this.report, item).length + 4) * charWidth,
          height: frameHead - 8,
          rx: 5
        }),
        svg('text', {x: 12, y: 16}, `${isFolded ? '\u25b8' : '\u25be'} ${frameTitle(this.report, item)}`),
        svg('title', {},
            isFolded                 ? 'Show each layer' :
                item.kind === 'fold' ? 'Fold alike layers' :
                                       'Shut this layer'));
  }

  drawBox(item, box) {
    const isLayer = item.kind === 'layer';
    const node = item.node;
    const fused = node && node.fusion;
    const lost = node ? sum(node.misses.map(miss => miss.bytes)) : 0;
    const isView = node && node.bytes === 0;
    const kinds =
        ['box', isLayer && 'shut', fused && 'fused', isView && 'view', lost > 0 && 'lost'].filter(Boolean);
    box.setAttribute('class', kinds.join(' '));
    if (node) this.marks.set(node, box);
    if (fused) box.setAttribute('style', `--hue:${this.report.hues.get(node.fusion) ?? 205}`);
    box.append(svg('rect', {width: item.w, height: item.h, rx: isLayer ? 8 : 5}));
    linesOf(this.report, item).forEach((line, i) => {
      const isName = i === 0;
      box.append(
          svg('text', {x: item.w / 2, y: 17 + i * lineHeight, class: isName ? 'name' : 'sub'},
              isName && isLayer ? `\u25b8 ${line}` : line));
    });
    if (lost > 0) box.append(svg('circle', {cx: item.w, cy: 0, r: 4.5}));
    box.append(svg('title', {}, isLayer ? 'Show this layer' : this.hint(node, lost)));
    box.addEventListener('click', () => {
      if (this.dragged) return;
      if (isLayer)
        this.actions.toggle(item.key, true);
      else
        this.actions.select(node);
    });
  }

  hint(node, lost) {
    return [
      node.ops.join(' \u2192 '), node.location, node.fusion && `fused: ${node.fusion}`,
      lost > 0 && `missed: ${bytesText(lost)}`
    ].filter(Boolean)
        .join('\n');
  }

  /** `name` on the boxes of these nodes only. */
  mark(name, nodes) {
    const boxes =
        new Set(nodes.map(node => this.marks.get(node) || this.marks.get(foldedNode(this.report, node))));
    for (const box of this.marks.values()) box.classList.toggle(name, boxes.has(box));
  }

  fit(isAll) {
    const {w, h} = this.tree.root;
    const {clientWidth: width, clientHeight: height} = this.canvas;
    const wide = (width - 16) / w;
    this.scale = isAll ? Math.min(wide, (height - 16) / h, 1.5) : Math.min(1, Math.max(wide, 0.6));
    this.x = (width - w * this.scale) / 2;
    this.y = 8;
    this.place();
  }

  /** Brings the node's box into view. */
  center(node) {
    const leaf = this.tree.leafOf(node);
    if (!leaf || leaf.w === undefined) return;
    let x = leaf.w / 2, y = leaf.h / 2;
    for (let item = leaf; item.parent; item = item.parent) {
      x += item.x;
      y += item.y;
    }
    const {clientWidth: width, clientHeight: height} = this.canvas;
    this.scale = Math.max(this.scale, 0.7);
    this.x = within(width / 2 - x * this.scale, width, this.tree.root.w * this.scale);
    this.y = within(height / 2 - y * this.scale, height, this.tree.root.h * this.scale);
    this.place();
  }

  zoomBy(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const scale = Math.min(3, Math.max(0.02, this.scale * factor));
    this.x = x - (x - this.x) * scale / this.scale;
    this.y = y - (y - this.y) * scale / this.scale;
    this.scale = scale;
    this.place();
  }

  place() {
    this.layer.setAttribute(
        'transform', `translate(${this.x.toFixed(1)} ${this.y.toFixed(1)}) scale(${this.scale.toFixed(4)})`);
  }

  listen() {
    this.canvas.addEventListener('wheel', event => {
      event.preventDefault();
      const at = this.canvas.getBoundingClientRect();
      this.zoomBy(Math.exp(-event.deltaY * 0.0015), event.clientX - at.left, event.clientY - at.top);
    }, {passive: false});
    let from = null;
    this.canvas.addEventListener('pointerdown', event => {
      from = {x: event.clientX - this.x, y: event.clientY - this.y, atX: event.clientX, atY: event.clientY};
      this.dragged = false;
    });
    window.addEventListener('pointermove', event => {
      if (!from) return;
      if (Math.hypot(event.clientX - from.atX, event.clientY - from.atY) > 4) this.dragged = true;
      if (!this.dragged) return;
      this.x = event.clientX - from.x;
      this.y = event.clientY - from.y;
      this.place();
    });
    window.addEventListener('pointerup', () => {
      from = null;
    });
  }
}

/** `start`, moved so that a drawing of `size` leaves no end of `room` empty that it could fill. */
function within(start, room, size) {
  const margin = 8;
  if (size + 2 * margin <= room) return (room - size) / 2;
  return Math.min(margin, Math.max(room - size - margin, start));
}

/** A smooth line through the points, which leaves and enters boxes vertically. */
function curve(points) {
  const [first, ...rest] = points.map(([x, y]) => [Number(x.toFixed(1)), Number(y.toFixed(1))]);
  let path = `M${first[0]} ${first[1]}`, [x, y] = first;
  for (const [nextX, nextY] of rest) {
    const bend = Math.max((nextY - y) / 2, nextX === x ? 0 : 8);
    path += nextX === x ? `V${nextY}` : `C${x} ${y + bend} ${nextX} ${nextY - bend} ${nextX} ${nextY}`;
    [x, y] = [nextX, nextY];
  }
  return path;
}
