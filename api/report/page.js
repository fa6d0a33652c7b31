/**
 * Puts the page together. What is shown can be said in the address: #after=3, #kernel=NAME, #search=TEXT,
 * #tab=misses, #layers=all.
 */
class Page {
  constructor(report) {
    this.report = report;
    this.open = new Map();  // frames that the user opened or shut
    this.shown = null;
    this.host = id => document.getElementById(id);
    const actions = this.actions = {
      toggle: (key, isOpen) => {
        this.open.set(key, isOpen);
        this.draw();
      },
      select: node => this.select({node}),
      selectKernel: kernel => this.select({kernel}),
    };
    this.head();
    this.panes = ['before', 'after'].map(side => new Pane(report, side, this.host(side), actions));
    this.tabs();
    this.listen();
    this.draw();
    this.panes.forEach(pane => pane.fit(false));
    showDetails(report, this.host('details'), null, actions);
    this.readAddress();
  }

  head() {
    const {data} = this.report;
    const change = (before, after) => before > 0 ?
        ` (${after <= before ? '\u2212' : '+'}${digits(Math.abs(100 - 100 * after / before))} %)` :
        '';
    const card = (title, value, note) => element(
        'div', {class: 'card'}, element('small', {}, title), element('b', {}, value),
        element('span', {class: 'quiet'}, note || ''));
    const sizes = Object.entries(data.nominal || {}).map(([name, size]) => `${name} = ${size}`).join(', ');
    const {kernels = {}, bytes = {}} = data;
    const lost = sum(this.report.misses.filter(miss => miss.applies).map(miss => miss.bytes));
    const name = (data.model || '').split('/').pop();
    document.title = `${name || 'A graph'}: fusion report`;
    this.host('head').append(
        element(
            'h1', {title: data.model || ''}, name || 'A graph',
            element('span', {class: 'quiet'}, data.target || '')),
        element(
            'div', {class: 'cards'},
            card(
                'Kernels', `${kernels.before} \u2192 ${kernels.after}`,
                change(kernels.before, kernels.after)),
            card(
                'Memory traffic', `${bytesText(bytes.before || 0)} \u2192 ${bytesText(bytes.after || 0)}`,
                change(bytes.before, bytes.after) + (sizes ? ` at ${sizes}` : '')),
            card('Fusions', String(this.report.sites.length), `of ${this.report.hues.size} kinds`),
            card('Missed', lost > 0 ? `up to ${bytesText(lost)}` : 'nothing', 'more could be saved')),
        data.no_plan ? element('p', {class: 'warning'}, `No GPU plan: ${data.no_plan}`) : '');
  }

  tabs() {
    const tabs = buildTables(this.report, this.actions);
    this.showTab = key => tabs.forEach(tab => {
      tab.body.hidden = tab.key !== key;
      tab.button.setAttribute('aria-selected', String(tab.key === key));
    });
    for (const tab of tabs) {
      tab.button =
          element('button', {type: 'button', role: 'tab', onclick: () => this.showTab(tab.key)}, tab.title);
      this.host('tabs').append(tab.button);
      this.host('tables').append(tab.body);
    }
    this.showTab('layers');
  }

  draw() {
    for (const pane of this.panes) {
      pane.draw(this.open);
      pane.place();
    }
    this.markAll();
  }

  select(shown) {
    this.shown = shown;
    showDetails(this.report, this.host('details'), shown, this.actions);
    const nodes = this.markAll();
    if (nodes.length > 0)
      this.panes.forEach(pane => {
        const own = nodes.find(node => node.side === pane.side);
        if (own) pane.center(own);
      });
    this.writeAddress();
  }

  /** Marks what is selected, what belongs to it on the other side, and what is searched for. */
  markAll() {
    const {node, kernel} = this.shown || {};
    const selected = node ? [node] :
        kernel            ? kernel.launches.map(launch => launch.target).filter(Boolean) :
                            [];
    const related = selected.flatMap(
        one => one.side === 'after' ? one.members :
            one.node !== undefined  ? [this.report.after[one.node]] :
                                      []);
    const all = [...selected, ...related];
    for (const pane of this.panes) {
      pane.mark('selected', selected.filter(one => one.side === pane.side));
      pane.mark('related', related.filter(one => one.side === pane.side));
      pane.mark('hit', (this.hits || []).filter(one => one.side === pane.side));
      pane.canvas.classList.toggle('searching', Boolean(this.hits));
    }
    return all;
  }

  search(text) {
    const words = text.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const nodes = ['after', 'before'].flatMap(side => this.report[side]);
    const isHit = node => words.every(word => textOf(node).includes(word));
    this.hits = words.length > 0 ? nodes.filter(isHit) : null;
    // Of alike layers one stands for all, if it is a hit itself.
    const hits = new Set(this.hits || []);
    this.stops =
        (this.hits || []).filter(node => node === this.standIn(node) || !hits.has(this.standIn(node)));
    this.stop = -1;
    this.host('found').textContent =
        this.hits ? `${this.hits.length} found` + (this.stops.length > 0 ? ', Enter: next' : '') : '';
    this.markAll();
  }

  standIn(node) { return foldedNode(this.report, node); }

  /** Goes to the next hit and opens the layers around it. */
  next() {
    if (!this.stops || this.stops.length === 0) return;
    this.stop = (this.stop + 1) % this.stops.length;
    this.reveal(this.stops[this.stop]);
    this.select({node: this.stops[this.stop]});
    this.host('found').textContent = `${this.stop + 1} of ${this.stops.length}`;
  }

  reveal(node) {
    const layer = this.report.layers[node.layer];
    if (!layer) return;
    if (this.standIn(node) !== node) this.open.set(`fold${layer.fold.index}`, true);
    this.open.set(`layer${layer.index}`, true);
    this.draw();
  }

  unfoldAll(isUnfolded) {
    this.open.clear();
    this.unfolded = isUnfolded;
    if (isUnfolded) {
      this.report.folds.forEach(fold => this.open.set(`fold${fold.index}`, true));
      this.report.layers.forEach(layer => this.open.set(`layer${layer.index}`, true));
    }
    this.host('unfold').textContent = isUnfolded ? 'Fold alike layers' : 'Unfold all layers';
    this.draw();
    this.panes.forEach(pane => pane.fit(false));
  }

  listen() {
    const search = this.host('search');
    search.addEventListener('input', () => this.search(search.value));
    search.addEventListener('keydown', event => {
      if (event.key === 'Enter') this.next();
      if (event.key === 'Escape') {
        search.value = '';
        this.search('');
        search.blur();
      }
    });
    window.addEventListener('keydown', event => {
      if (event.key !== '/' || event.target === search) return;
      event.preventDefault();
      search.focus();
    });
    const unfold = this.host('unfold');
    unfold.hidden = this.report.folds.every(fold => fold.times === 1 && this.report.layers.length < 2);
    unfold.addEventListener('click', () => this.unfoldAll(!this.unfolded));
    window.addEventListener('hashchange', () => this.readAddress());
  }

  readAddress() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    if (wanted.get('layers') === 'all') this.unfoldAll(true);
    if (wanted.has('tab')) this.showTab(wanted.get('tab'));
    if (wanted.has('search')) {
      this.host('search').value = wanted.get('search');
      this.search(wanted.get('search'));
      if (wanted.has('next')) this.next();
    }
    for (const side of ['before', 'after']) {
      const node = wanted.has(side) ? this.report[side][Number(wanted.get(side))] : undefined;
      if (node) {
        this.reveal(node);
        this.select({node});
      }
    }
    const kernel = this.report.kernels.get(wanted.get('kernel'));
    if (kernel) this.select({kernel});
  }

  /** So that a link to what is shown can be passed on; a notebook's frame has no address. */
  writeAddress() {
    if (location.protocol === 'about:') return;
    const {node, kernel} = this.shown;
    history.replaceState(
        null, '', node ? `#${node.side}=${node.id}` : `#kernel=${encodeURIComponent(kernel.name)}`);
  }
}

new Page(readReport(JSON.parse(document.getElementById('report').textContent)));
