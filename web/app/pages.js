// The pages, in the order of the navigation; each is loaded when it is first shown. `needs` is what a role must be able to do.
/** @type {{ name: string, title: string, needs: import("./session.js").Ability, load: () => Promise<any> }[]} */
export const PAGES = [
  { name: "overview", title: "Overview", needs: "status", load: () => import("./pages/overview.js") },
  { name: "logs", title: "Logs", needs: "read", load: () => import("./pages/logs.js") },
  { name: "traces", title: "Traces", needs: "read", load: () => import("./pages/traces.js") },
  { name: "metrics", title: "Metrics", needs: "read", load: () => import("./pages/metrics.js") },
  { name: "signal", title: "Signal", needs: "read", load: () => import("./pages/signal.js") },
  { name: "sql", title: "SQL", needs: "read", load: () => import("./pages/sql.js") },
  { name: "fleet", title: "Fleet", needs: "fleet", load: () => import("./pages/fleet.js") },
  { name: "dead-letters", title: "Dead letters", needs: "read", load: () => import("./pages/dead_letters.js") },
  { name: "storage", title: "Storage", needs: "fleet", load: () => import("./pages/storage.js") },
  { name: "security", title: "Security", needs: "audit", load: () => import("./pages/security.js") },
];
