// Logs: what was recorded when, by whom; found, narrowed, followed live, and saved.
import { count } from "../format.js";
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { useRowKeys } from "../keys.js";
import { change } from "../location.js";
import { Chips } from "../parts/chips.js";
import { Typed } from "../parts/field.js";
import { LogDrawer } from "../parts/log_drawer.js";
import { LogFacets, useFields } from "../parts/log_facets.js";
import { LogHistogram } from "../parts/log_histogram.js";
import { ColumnMenu, LogList } from "../parts/log_list.js";
import { filters, isChip, logsCommand, oppositeOf, PATH, placeOf, question, rowAt, sqlOf, useLogRows } from "../parts/log_query.js";
import { useLogTail } from "../parts/log_tail.js";
import { Menu } from "../parts/menu.js";
import { EmptyState, ErrorBox, Waiting } from "../parts/messages.js";
import { ownStyle } from "../parts/own_style.js";
import { LEVELS, Question } from "../parts/question.js";
import { FORMATS, savePages } from "../parts/save_file.js";
import { SavedViews } from "../parts/saved_views.js";
import { TimePicker } from "../parts/time_picker.js";
import { useJob } from "../parts/work.js";
import { range, rangeName } from "../time_range.js";

ownStyle("logs.css");

/** Rows of a file. */
const MOST = 500_000;

/** @returns {Promise<string>} what was saved */
async function exported(params, format, signal, tell) {
  const name = `logs_${rangeName(range(params))}`;
  const { rows, isCut, partial } = await savePages({ path: PATH, params: question(params) }, { name, format, most: MOST }, signal, tell);
  const cut = isCut ? ` These are the newest ${count(rows)}; for the others set “until” to the last one's time.` : "";
  return `${count(rows)} rows saved.${cut}${partial ? ` Incomplete: ${partial}` : ""}`;
}

/** Saves what was asked for as a file, with progress and a way to stop. */
function LogExport({ params }) {
  const { run, stop, value: said, progress, error } = useJob();
  return html`<${Menu} label="Export">
    ${progress !== null
      ? html`<${Waiting} what=${`${count(progress)} rows so far`} cancel=${stop} />`
      : html`<div class="bar">${Object.keys(FORMATS).map((format) => html`<button onClick=${() => run((signal, tell) => exported(params, format, signal, tell))}>${format.toUpperCase()}</button>`)}</div>`}
    <p class="dim" role="status">${said || "All records of the time range that the filters let through."}</p>
    <${ErrorBox} error=${error} />
  </${Menu}>`;
}

/** How long nobody must have typed before it is searched, ms; how far is scrolled before live tail holds still, pixels. */
const [TYPED, SCROLLED] = [300, 30];
const VIEWS = ["list", "table", "json"];
const WIDE = "(min-width: 721px)";

/** The text that is searched for: asked when nobody types any more. */
function Search({ params }) {
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  const search = (q, wait) => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => change({ q, row: null }, true), wait);
  };
  return html`<form role="search" class="log-search" onSubmit=${(event) => {
    event.preventDefault();
    search(event.currentTarget.q.value, 0);
  }}><${Typed} type="search" data-search aria-label="Part of the message" name="q" placeholder="part of the message   /" value=${params.get("q") || ""} onInput=${(event) => search(event.target.value, TYPED)} /></form>`;
}

function Toolbar({ params, view, live, side, known }) {
  return html`<div class="bar">
      <button aria-pressed=${side} onClick=${() => change({ side: side ? "off" : "on" }, true)}>Fields</button>
      <${Search} params=${params} />
      <select aria-label="Least level" value=${params.get("min_level") || ""} onChange=${(event) => change({ min_level: event.target.value, row: null })}>
        <option value="">any level</option>${LEVELS.toReversed().map((level) => html`<option value=${level}>${level === "error" ? level : `${level} and up`}</option>`)}</select>
      ${live ? null : html`<${TimePicker} params=${params} />`}
      <button aria-pressed=${live} class=${live ? "on" : ""} onClick=${() => change({ live: live ? null : "1", row: null, until: null })}>${live ? "Stop live" : "Live"}</button>
      <div class="switch" role="group" aria-label="View">${VIEWS.map((one) => html`<button aria-pressed=${view === one} onClick=${() => change({ view: one === "list" ? null : one })}>${one}</button>`)}</div>
      ${view === "table" && html`<${ColumnMenu} params=${params} known=${known} />`}
      <${SavedViews} page="logs" without=${["row"]} />
      <${LogExport} params=${params} />
    </div>
    <${Chips} params=${params} keys=${isChip} opposite=${oppositeOf} />`;
}

/** How live tail is doing. */
function LiveState({ tail, resume }) {
  const [now, setNow] = useState(Date.now());
  const waits = tail.state === "waiting";
  useEffect(() => {
    if (!waits) return;
    const timer = setInterval(() => setNow(Date.now()), 500);
    return () => clearInterval(timer);
  }, [waits]);
  const said = { connecting: "Connecting", following: "Following", refused: "Refused", waiting: `Trying again in ${Math.max(0, Math.ceil((tail.retryAt - now) / 1_000))} s` }[tail.state];
  return html`<div class="bar">
    <button onClick=${tail.paused ? resume : tail.pause}>${tail.paused ? `Resume${tail.held ? ` (${count(tail.held)} came meanwhile)` : ""}` : "Pause"}</button>
    <span role="status">${said}${tail.paused ? ", paused" : ""}</span>
    ${waits && html`<button onClick=${tail.retry}>Try now</button>`}
    <span class="dim">${count(tail.total)} came, ${count(tail.rows.length)} are kept. ${tail.notice} ${tail.gap && html`<strong class="bad">${tail.gap}</strong>`}</span>
    <${ErrorBox} error=${tail.error} />
  </div>`;
}

/** How far the list is. */
function ListState({ list }) {
  const { rows, next, stats, partial } = list;
  const end = list.isCut ? "more are not kept here: narrow the question, or export" : next ? "more as you scroll" : list.stopped ? "stopped" : "all of them";
  return html`<div class="bar dim" role="status">
    ${list.loading ? html`<${Waiting} what=${rows.length ? "Asking for rows" : "Asking"} cancel=${list.cancel} />` : html`<span>${count(rows.length)} rows, ${end}${stats ? `; ${count(stats.files_read)} of ${count(stats.files_considered)} files read, ${stats.ms} ms` : ""}</span><button class="quiet" onClick=${list.again}>Ask again</button>`}
    ${partial && html`<strong class="bad">Incomplete: ${partial}</strong>`}
  </div>`;
}

function Empty({ params, live }) {
  const filtered = Object.keys(filters(params)).length > 0;
  if (live) return html`<${EmptyState} command=${`${logsCommand(params, false)} --follow`}>Nothing came yet. The same in a terminal:</${EmptyState}>`;
  return html`<${EmptyState} command=${filtered ? null : "platform run"}>${filtered
    ? html`No record of this time range passes the filters. Remove one above, <button onClick=${() => change({ since: "7d", until: null })}>look back 7 days</button> or <button onClick=${() => change(Object.fromEntries(Object.keys(filters(params)).map((key) => [key, null])))}>remove all filters</button>`
    : html`No record in this time range. <button onClick=${() => change({ since: "7d", until: null })}>Look back 7 days</button> Records come from a Rack, or from any sender of OpenTelemetry to <code>/v1/logs</code>:`}</${EmptyState}>`;
}

/** What does not change while rows come is not drawn anew with them. */
function useFrame({ params, view, live, side, rows, ready }) {
  const fields = useFields(params, rows, ready);
  const { known } = fields;
  const top = useMemo(() => html`<${Toolbar} params=${params} view=${view} live=${live} side=${side} known=${known} />
    <${Question} path=${live ? `${PATH}/tail` : PATH} params=${live ? filters(params) : question(params)} command=${`${logsCommand(params, !live)}${live ? " --follow" : ""}`} sql=${sqlOf(params)} />`, [params, known]);
  const facets = useMemo(() => side && html`<${LogFacets} params=${params} fields=${fields} ready=${ready} />`, [params, ready, known, fields.loading, fields.error]);
  const chart = useMemo(() => html`<${LogHistogram} params=${params} ready=${ready} live=${live} known=${known} />`, [params, ready, known]);
  return { top, facets, chart };
}

/** The row that is chosen, and the one that is open: by keys and by presses. */
function useChosen({ rows, place, live, tail, asked }) {
  // The row, not its place: that moves as others come.
  const [row, select] = useState(null);
  const selected = useMemo(() => rows.indexOf(row), [rows, row]);
  useEffect(() => select(null), [asked, live]);
  // Live tail does not go back to the row that is open.
  useEffect(() => {
    const opened = place && !live && rowAt(place, rows);
    if (opened) select(opened);
  }, [place, rows, live]);
  const show = (at, replace = false) => change({ row: placeOf(rows[at]) }, replace);
  const choose = (at) => {
    if (live) tail.pause();
    select(rows[at]);
  };
  useRowKeys({
    count: rows.length, selected, open: show,
    select: (at) => {
      choose(at);
      if (place) show(at, true);
    },
  });
  const press = (at) => {
    choose(at);
    show(at, Boolean(place));
  };
  return { selected, select, press };
}

export default function Logs({ params }) {
  const live = params.get("live") === "1";
  const view = VIEWS.find((one) => one === params.get("view")) || "list";
  const side = params.get("side") ? params.get("side") === "on" : matchMedia(WIDE).matches;
  const place = params.get("row");
  const list = useLogRows(params, !live);
  const tail = useLogTail(params, live);
  const rows = live ? tail.rows : list.rows;
  const isAnswered = !list.loading && list.isCurrent;
  // The other questions wait for the rows, which are what somebody looks for.
  /** @type {any} */
  const [answered, setAnswered] = useState(false);
  const asked = JSON.stringify(question(params));
  useEffect(() => {
    if (live || isAnswered) setAnswered((list.error || list.stopped) && !live ? false : asked);
  }, [asked, live, isAnswered, list.error, list.stopped]);
  const { top, facets, chart } = useFrame({ params, view, live, side, rows, ready: answered === asked && asked });
  const { selected, select, press } = useChosen({ rows, place, live, tail, asked });
  const scrolled = (event) => live && !tail.paused && event.target.scrollTop > SCROLLED && tail.pause();
  const box = useRef(null);
  const resume = () => {
    const scroller = box.current?.querySelector(".virtual");
    if (scroller) scroller.scrollTop = 0;
    select(null);
    tail.resume();
  };
  return html`${top}
    <div class="split logs">
      ${facets}
      <div class="main">
        ${!list.error && chart}
        ${live ? html`<${LiveState} tail=${tail} resume=${resume} />` : html`${(!list.error || list.loading) && html`<${ListState} list=${list} />`}<${ErrorBox} error=${list.error} again=${list.again} />`}
        ${rows.length > 0 && html`<div class=${`rows ${view}`} ref=${box} onScrollCapture=${scrolled} onPointerDown=${() => live && tail.pause()}><${LogList} key=${live ? "live" : list.key} rows=${rows} view=${view} params=${params} selected=${selected} choose=${press} onEnd=${live ? undefined : list.more} /></div>`}
        ${rows.length === 0 && (live ? tail.state === "following" : isAnswered && !list.error && !list.stopped) && html`<${Empty} params=${params} live=${live} />`}
      </div>
    </div>
    ${place && html`<${LogDrawer} place=${place} rows=${rows} params=${params} />`}`;
}
