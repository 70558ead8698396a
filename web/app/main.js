// The frame: who is asking, the navigation, the page that the address names, and keys that work everywhere.
import { html, render, useEffect, useLayoutEffect, useState } from "./html.js";
import { href, useLocation } from "./location.js";
import { PAGES } from "./pages.js";
import { ErrorBox, Waiting } from "./parts/messages.js";
import { may, useSession } from "./session.js";

const THEME = "platform.theme";

function applyTheme() {
  const theme = localStorage.getItem(THEME);
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function toggleTheme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  localStorage.setItem(THEME, dark ? "light" : "dark");
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
  ["Enter", "open the row"],
  ["/", "to the search"],
  ["g then l, t, m, s, q, f, d", "to logs, traces, metrics, signal, SQL, fleet, dead letters"],
  ["Esc", "close"],
  ["?", "this list"],
];
const GO = { o: "overview", l: "logs", t: "traces", m: "metrics", s: "signal", q: "sql", f: "fleet", d: "dead-letters", b: "storage", a: "security" };

/** Keys that work on every page, but not while somebody types. */
function useKeys(setHelp) {
  useEffect(() => {
    let pending = false;
    const key = (event) => {
      const typing = event.target.closest?.("input, textarea, select");
      if (event.key === "Escape") {
        setHelp(false);
        if (typing) event.target.blur();
        return;
      }
      if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
      if (pending && GO[event.key]) location.hash = `#/${GO[event.key]}`;
      else if (event.key === "?") setHelp((shown) => !shown);
      else if (event.key === "/") document.querySelector("[data-search]")?.focus();
      pending = event.key === "g";
      if (event.key === "/") event.preventDefault();
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);
}

function Help({ close }) {
  return html`<dialog open class="help" aria-label="Keys"><h2>Keys</h2>
    <dl>${KEYS.map(([keys, what]) => html`<dt><kbd>${keys}</kbd></dt><dd>${what}</dd>`)}</dl>
    <button onClick=${close}>Close</button></dialog>`;
}

function App() {
  const session = useSession();
  const at = useLocation();
  const [views, setViews] = useState({});
  const [error, setError] = useState(null);
  const [help, setHelp] = useState(false);
  useKeys(setHelp);
  const page = PAGES.find(({ name }) => name === at.page);
  // Not after it is painted that this is awaited: the view is asked for at once.
  useLayoutEffect(() => {
    document.title = `${page ? page.title : "Not found"} · Platform`;
    setError(null);
    if (page && !views[page.name]) {
      page.load().then((module) => setViews((known) => ({ ...known, [page.name]: module.default })), setError);
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
    if (error) return html`<${ErrorBox} error=${error} />`;
    return View ? html`<${View} key=${page.name} params=${at.params} caller=${caller} />` : html`<${Waiting} what=${`Loading ${page.title}`} />`;
  };
  return html`<a class="skip" href="#content" onClick=${(event) => {
      event.preventDefault();
      document.getElementById("content").focus();
    }}>To the content</a>
    <header class="frame">
      <nav aria-label="Pages">${offered.map(({ name, title }) => html`<a href=${href(name)} aria-current=${name === at.page ? "page" : undefined}>${title}</a>`)}</nav>
      <span class="caller" title=${caller.roles.join(", ")}>${caller.caller}</span>
      <button class="quiet" onClick=${toggleTheme} aria-label="Light or dark">◐</button>
      <button class="quiet" onClick=${() => setHelp(!help)} aria-label="Keys">?</button>
    </header>
    <main id="content" tabindex="-1"><h1 class="hidden">${page ? page.title : "Not found"}</h1>${body()}</main>
    ${help && html`<${Help} close=${() => setHelp(false)} />`}`;
}

applyTheme();
render(html`<${App} />`, document.getElementById("page"));
