// The frame: who is asking, the navigation, the page that the address names, and keys that work everywhere.
import { hasToken } from "./api.js";
import { Component, html, render, useLayoutEffect, useRef, useState } from "./html.js";
import { keep, kept } from "./kept.js";
import { isTyping, useEscape, useKeys } from "./keys.js";
import { href, useLocation, visit } from "./location.js";
import { PAGES } from "./pages.js";
import { ErrorBox, Waiting } from "./parts/messages.js";
import { may, useSession } from "./session.js";

function applyTheme() {
  const theme = kept("theme");
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function toggleTheme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  keep("theme", dark ? "light" : "dark");
  applyTheme();
  dispatchEvent(new HashChangeEvent("hashchange"));
}

function Login({ login }) {
  const [error, setError] = useState(null);
  const submit = (event) => {
    event.preventDefault();
    login(String(new FormData(event.currentTarget).get("token"))).catch(setError);
  };
  return html`<main class="login"><h1>Platform</h1>
    <form onSubmit=${submit}>
      <label>Token <input name="token" type="password" autocomplete="off" autofocus required /></label>
      <button>Sign in</button>
    </form>
    <p>The token is kept in the memory of this page only. Make one with <code>platform token create NAME --role reader</code>.</p>
    <${ErrorBox} error=${error} /></main>`;
}

const KEYS = [
  ["j, k or ↓, ↑", "next and previous row"],
  ["Page ↓, Page ↑, Home, End", "20 rows further or back, the first and the last row"],
  ["Enter", "open the row"],
  ["Space", "mark the row, of dead letters"],
  ["/", "to the search"],
  ["g then o, l, t, m, s, q, f, d, b, a", "to the views, in their order"],
  ["Esc", "close"],
  ["?", "this list"],
];
const GO = { o: "overview", l: "logs", t: "traces", m: "metrics", s: "signal", q: "sql", f: "fleet", d: "dead-letters", b: "storage", a: "security" };

/** Views of a time range, and the parameter with which they show something else: live tail, or one trace or signal of any time. */
const RANGED = { logs: "live", traces: "trace_id", metrics: "", signal: "flux_id" };

/**
 * The addresses of the navigation: a time range goes along to the other views that have one, also by way of those that have none. Dead letters
 * and the audit log, which are rare, begin with their own.
 * @param {import("./location.js").Location} at
 */
function useAddresses({ page, params }) {
  const range = useRef({ since: null, until: null });
  const [since, until] = [params.get("since"), params.get("until")];
  if (Object.hasOwn(RANGED, page) && !params.get(RANGED[page]) && (since || until)) range.current = { since, until };
  return (name) => href(name, Object.hasOwn(RANGED, name) ? range.current : {});
}

/** Keys that work on every page, but not while somebody types. */
function useFrameKeys(addressOf, setHelp) {
  const pending = useRef(false);
  useKeys((event) => {
    if (isTyping(event)) return event.key === "Escape" && event.target.blur();
    if (pending.current && GO[event.key]) visit(addressOf(GO[event.key]));
    else if (event.key === "?") setHelp((shown) => !shown);
    else if (event.key === "/") document.querySelector("[data-search]")?.focus();
    pending.current = event.key === "g";
    if (event.key === "/") event.preventDefault();
  });
}

function Help({ close }) {
  useEscape(close);
  return html`<dialog open class="help" aria-label="Keys"><h2>Keys</h2>
    <dl>${KEYS.map(([keys, what]) => html`<dt><kbd>${keys}</kbd></dt><dd>${what}</dd>`)}</dl>
    <button onClick=${close}>Close</button></dialog>`;
}

/**
 * After an upgrade of the Mixer the files of the old build are gone: the page is loaded anew, once for each build that is left.
 * @returns {Promise<boolean>} whether it is
 */
async function isReloaded() {
  const [left, own] = ["platform.left", new URL(import.meta.url).pathname];
  const index = await fetch("./", { cache: "no-store" }).then((response) => (response.ok ? response.text() : own)).catch(() => own);
  try {
    if (index.includes(own) || sessionStorage.getItem(left) === own) return false;
    sessionStorage.setItem(left, own);
  } catch {
    return false;
  }
  location.reload();
  return true;
}

/** What failed, where the page has to be loaded anew. */
function Broken({ what, children }) {
  return html`<div class="error" role="alert"><strong>${what}</strong> ${children} <button onClick=${() => location.reload()}>Load the page anew</button></div>`;
}

/** A view that fails takes neither the frame with it nor the next address. */
class Guard extends Component {
  componentDidCatch(error) {
    this.setState({ error });
  }

  componentDidUpdate({ at }) {
    if (at !== this.props.at && this.state.error) this.setState({ error: null });
  }

  render({ children }, { error }) {
    return error ? html`<${Broken} what="This view failed">${String(error)}</${Broken}>` : children;
  }
}

function App() {
  const session = useSession();
  const at = useLocation();
  const [views, setViews] = useState({});
  const [failed, setFailed] = useState("");
  const [help, setHelp] = useState(false);
  const addressOf = useAddresses(at);
  useFrameKeys(addressOf, setHelp);
  const page = PAGES.find(({ name }) => name === at.page);
  // Not after it is painted that this is awaited: the view is asked for at once.
  useLayoutEffect(() => {
    document.title = `${page ? page.title : "Not found"} · Platform`;
    setFailed("");
    if (page && !views[page.name]) {
      page.load().then((module) => setViews((known) => ({ ...known, [page.name]: module.default })), async () => (await isReloaded()) || setFailed(page.name));
    }
  }, [at.page]);
  if (session.asks) return html`<${Login} login=${session.login} />`;
  if (!session.caller) {
    return session.error ? html`<main><${ErrorBox} error=${session.error} again=${session.look} /></main>` : html`<main><${Waiting} what="Asking the Mixer" /></main>`;
  }
  const { caller } = session;
  const offered = PAGES.filter(({ needs }) => may(caller, needs));
  const View = page && views[page.name];
  const body = () => {
    if (!page) return html`<p>There is no page ${at.page}. <a href="#/overview">Overview</a></p>`;
    if (!may(caller, page.needs)) return html`<p>The roles of ${caller.caller} (${caller.roles.join(", ")}) do not allow this page.</p>`;
    if (failed === page.name) return html`<${Broken} what=${`${page.title} could not be loaded`}>Is the Mixer running? If it is another build by now, this page has to be loaded anew; a token has to be given again then.</${Broken}>`;
    return View ? html`<${Guard} key=${page.name} at=${at}><${View} params=${at.params} caller=${caller} /></${Guard}>` : html`<${Waiting} what=${`Loading ${page.title}`} />`;
  };
  return html`<a class="skip" href="#content" onClick=${(event) => {
      event.preventDefault();
      document.getElementById("content").focus();
    }}>To the content</a>
    <header class="frame">
      <nav aria-label="Pages">${offered.map(({ name, title }) => html`<a href=${addressOf(name)} aria-current=${name === at.page ? "page" : undefined}>${title}</a>`)}</nav>
      <span class="caller" title=${caller.roles.join(", ")}>${caller.caller}</span>
      ${hasToken() && html`<button class="quiet" onClick=${session.logout} title="Forgets the token, all answers, and the statements of the SQL view; close the tab to forget where you were">Sign out</button>`}
      <button class="quiet" onClick=${toggleTheme} aria-label="Light or dark">◐</button>
      <button class="quiet" onClick=${() => setHelp(!help)} aria-label="Keys">?</button>
    </header>
    <main id="content" tabindex="-1"><h1 class="hidden">${page ? page.title : "Not found"}</h1>${body()}</main>
    ${help && html`<${Help} close=${() => setHelp(false)} />`}`;
}

applyTheme();
render(html`<${App} />`, document.getElementById("page"));
