/** The tables below the graphs, one shown at a time. */
function buildTables(report, actions) {
  const tabs = [
    ['layers', 'By layer', layersTable(report, actions)],
    ['misses', 'Missed', missesTable(report, actions)],
    ['fusions', 'Fusions', fusionsTable(report)],
    ['kernels', 'Kernels', kernelsTable(report, actions)],
    ['notes', 'Notes', notes(report)],
  ];
  return tabs.map(([key, title, body]) => ({key, title, body: element('section', {id: `tab-${key}`}, body)}));
}

function table(heads, rows) {
  return element(
      'table', {}, element('thead', {}, element('tr', {}, heads.map(head => element('th', {}, head)))),
      element('tbody', {}, rows));
}

function chip(report, name) {
  const hue = report.hues.get(name);
  return element(
      'span', {
        class: hue === undefined ? 'chip' : 'chip fused',
        style: hue === undefined ? undefined : `--hue:${hue}`
      },
      name);
}

function row(cells, act) {
  return element(
      'tr',
      act ? {
        class: 'act',
        tabindex: 0,
        onclick: act,
        onkeydown: event => {
          if (event.key === 'Enter') act();
        }
      } :
            {},
      cells.map(cell => element('td', {}, cell)));
}

/** Layers that are alike once, in the order of the graph, then what is outside of layers. */
function layersTable(report, actions) {
  const parts = [];
  const place = site => site.target ? site.target.id : -1;
  const sites = [...report.sites].sort((a, b) => place(a) - place(b));
  const of = layer => sites.filter(site => (site.target && report.layers[site.target.layer]) === layer);
  const section = (title, note, sites, kernels) => {
    if (sites.length === 0) return;
    const saved = bytesText(sum(sites.map(site => site.bytes_saved)));
    parts.push(element(
        'details', {open: '', class: 'layer'},
        element(
            'summary', {}, element('b', {}, title),
            element(
                'span', {class: 'quiet'},
                [
                  note, `${sites.length} fusion${sites.length === 1 ? '' : 's'}`,
                  kernels && `${kernels} kernels`, `${saved} saved`
                ].filter(Boolean)
                    .join(' \u00b7 '))),
        table(
            ['fusion', 'where', 'ops', 'saves', 'time'],
            sites.map(
                site => row(
                    [
                      chip(report, site.fusion),
                      site.target ? placeOf(report, site.target) : site.location,
                      site.ops.map(opName).join(' \u2192 '),
                      bytesText(site.bytes_saved),
                      site.microseconds ?
                          `${timeText(site.microseconds.fused)} / ${timeText(site.microseconds.unfused)}` :
                          '',
                    ],
                    site.target && (() => actions.select(site.target)))))));
  };
  const kernels = new Map((report.data.layers || []).map(layer => [layer.name, layer.kernels]));
  for (const fold of report.folds)
    for (let i = 0; i < fold.layers; ++i) {
      const layer = report.layers[fold.first + i];
      const last = report.layers[layer.index + fold.layers * (fold.times - 1)];
      const every = fold.layers > 1 ? `, every ${fold.layers}th` : '';
      section(
          fold.times > 1 ? `${layer.name} \u2026 ${last.name}` : layer.name,
          fold.times > 1 ? `${fold.times} alike${every}; for each` : '', of(layer), kernels.get(layer.name));
    }
  section(report.layers.length > 0 ? 'Outside of layers' : 'What fused', '', of(undefined));
  return parts.length > 0 ? parts : element('p', {class: 'quiet'}, 'Nothing fused.');
}

/** The number of a layer in any text becomes a star, so that alike misses are one line. */
function masked(report, text) {
  const prefixes = new Set(report.layers.map(layer => layer.name.replace(/\d+$/, '')).filter(Boolean));
  let result = text;
  for (const prefix of prefixes) {
    const quoted = prefix.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
    result = result.replace(new RegExp(`(^|[^\\w.])(${quoted})\\d+`, 'g'), '$1$2*');
  }
  return result;
}

function missesTable(report, actions) {
  const rows = new Map();
  for (const miss of report.misses) {
    const key = [miss.fusion, masked(report, miss.location), masked(report, miss.reason)].join('\n');
    const known = rows.get(key) || rows.set(key, {miss, bytes: 0, count: 0}).get(key);
    known.bytes += miss.bytes;
    ++known.count;
  }
  const sorted = [...rows.values()].sort((a, b) => b.bytes - a.bytes);
  const hidden = sorted.filter(({miss}) => !miss.applies);
  const body = table(['could save', 'sites', 'fusion', 'where', 'why'], sorted.map(({miss, bytes, count}) => {
    const made = row(
        [
          bytes > 0 ? bytesText(bytes) : '', String(count), chip(report, miss.fusion),
          miss.location ? (count > 1 ? masked(report, miss.location) : miss.location) : 'everywhere',
          count > 1 ? masked(report, miss.reason) : miss.reason
        ],
        miss.target && (() => actions.select(miss.target)));
    if (!miss.applies) made.classList.add('inapplicable');
    return made;
  }));
  const names = new Set(hidden.map(({miss}) => miss.fusion));
  const toggle = element(
      'input',
      {type: 'checkbox', id: 'all-misses', onchange: () => body.classList.toggle('all', toggle.checked)});
  return [
    element(
        'p', {class: 'quiet'},
        'What the ops that were found would save as one kernel, ' +
             'beyond what they save in the fusions that they are in now. '),
    names.size > 0 ?
        element('label', {}, toggle, ` Show ${names.size} fusions that this graph has nothing for`) :
        null,
    body
  ];
}

function fusionsTable(report) {
  const shown = report.fusions.filter(fusion => fusion.applies || fusion.sites.length > 0);
  const others = report.fusions.filter(fusion => !shown.includes(fusion)).map(fusion => fusion.name);
  const amount = bytes => bytes > 0 ? bytesText(bytes) : '';
  return [
    table(
        ['fusion', 'fired', 'missed', 'saved', 'could save'],
        shown.map(fusion => row([
                    chip(report, fusion.name), String(fusion.sites.length), String(fusion.misses.length),
                    amount(sum(fusion.sites.map(site => site.bytes_saved))),
                    amount(sum(fusion.misses.map(miss => miss.bytes)))
                  ]))),
    others.length > 0 ?
        element('p', {class: 'quiet'}, `Nothing for them in this graph: ${others.join(', ')}.`) :
        null
  ];
}

function kernelsTable(report, actions) {
  if (!report.hasKernels)
    return element(
        'p', {class: 'quiet'}, report.data.no_plan ? `No kernels: ${report.data.no_plan}` : noKernels);
  const time = kernel => sum(kernel.launches.map(launch => launch.microseconds || 0));
  const sorted = [...report.kernels.values()].sort((a, b) => time(b) - time(a));
  return table(
      ['kernel', 'schedule', 'threads', 'launches', 'time', 'fusions'],
      sorted.map(
          kernel => row(
              [
                element('code', {}, kernel.name),
                kernel.schedule,
                kernel.threads ? String(kernel.threads) : kernel.library || '',
                String(kernel.launches.length),
                time(kernel) > 0 ? timeText(time(kernel)) : '',
                [...new Set(kernel.launches.map(launch => launch.fusion).filter(Boolean))].map(
                    name => chip(report, name)),
              ],
              () => actions.selectKernel(kernel))));
}

function notes(report) {
  const {data} = report;
  const raises = Object.entries(data.raises || {});
  const lines = [...new Set(raises.flatMap(
      ([name, op]) =>
          [...op.sites.filter(site => site.assumes)
               .map(site => `${name} at ${masked(report, site.location)} assumes: ${site.assumes}`),
           ...op.missed.map(
               miss =>
                   `${name} missed at ${masked(report, miss.location)}: ${masked(report, miss.reason)}`)]))];
  const list = items => element('ul', {}, items.map(item => element('li', {}, item)));
  return [
    element('h3', {}, 'Choice between fusions'),
    element('p', {}, data.profit || 'modelled'),
    list((data.unmeasured || []).map(miss => `modelled at ${miss.location}: ${miss.reason}`)),
    raises.length > 0 ? element('h3', {}, 'Named ops found in decomposed spellings') : null,
    raises.length > 0 ?
        table(
            ['op', 'found', 'missed'],
            raises.map(([name, op]) => row([name, String(op.sites.length), String(op.missed.length)]))) :
        null,
    list(lines),
    (data.unused_features || []).length > 0 ?
        element(
            'p', {},
            `Features of ${data.target} that no kernel uses yet: ${data.unused_features.join(', ')}.`) :
        null,
  ];
}
