// What both pages share: Airflow's light or dark, links that leave the frame, times in the reader's own zone.
"use strict";

// The frame has Airflow's origin, so that it can see which theme the page around it shows.
function followTheme() {
  if (window.parent === window) return;
  const outer = window.parent.document.documentElement;
  const apply = () => {
    document.documentElement.style.colorScheme = outer.classList.contains("dark") ? "dark" : "light";
  };
  new MutationObserver(apply).observe(outer, { attributes: true, attributeFilter: ["class", "style"] });
  apply();
}

// A sandboxed frame may not navigate the page around it; a link of that page may.
function goOutside(address) {
  const page = window.parent.document;
  const link = page.createElement("a");
  link.href = address;
  page.body.append(link);
  link.click();
  link.remove();
}

const moments = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

function localTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    time.title = time.dateTime;
    time.textContent = moments.format(new Date(time.dateTime));
  }
}

// Fetches a page and puts those of its elements that have these ids in the place of ours; what the server said if it refused.
async function refresh(address, ids) {
  const answer = await fetch(address, { headers: { Accept: "text/html" }, credentials: "same-origin" });
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (!answer.ok) return page.querySelector(".note")?.textContent.trim() ?? `Airflow answered ${answer.status}`;
  for (const id of ids) {
    const made = page.getElementById(id);
    const shown = document.getElementById(id);
    if (!made || !shown) continue;
    keepOpen(shown, made);
    shown.replaceWith(document.adoptNode(made));
  }
  localTimes(document);
  return "";
}

// What somebody has opened stays open, and the keyboard stays where it was.
function keepOpen(shown, made) {
  for (const part of shown.querySelectorAll("details[id]")) {
    const next = made.querySelector(`#${CSS.escape(part.id)}`);
    if (next) next.open = part.open;
  }
  const focused = document.activeElement?.closest("details[id]");
  if (!focused || !shown.contains(focused)) return;
  const next = made.querySelector(`#${CSS.escape(focused.id)} > summary`);
  if (next) requestAnimationFrame(() => next.focus({ preventScroll: true }));
}

function say(text) {
  let line = document.getElementById("trouble");
  if (!line && text) {
    line = document.createElement("div");
    line.id = "trouble";
    line.className = "notice warn";
    document.querySelector("main").prepend(line);
  }
  if (line) line.textContent = text;
  if (line) line.hidden = !text;
}

// --- runs of other DAGs: through Airflow's own API, so that Airflow decides whether this user may start them ---------

const base = document.body.dataset.base;

const RUN_MS = 2000;

// Starts a run; gives words, which say its result once it is over, and a link to its page.
async function startRun(dag, conf) {
  const run = await ask("POST", `/api/v2/dags/${dag}/dagRuns`, { logical_date: null, conf });
  const words = document.createTextNode(`The run ${run.dag_run_id} has begun. `);
  const link = document.createElement("a");
  link.href = `${base}/dags/${dag}/runs/${encodeURIComponent(run.dag_run_id)}/plugin/dataset-report`;
  link.dataset.outside = "";
  link.textContent = "Watch it";
  followRun(run, words, link);
  return [words, link];
}

// Until the run is over, or Airflow refuses to say more of it: the link then leads to whatever became of it.
async function followRun(run, words, link) {
  const results = { success: ["has succeeded. ", "See its results"], failed: ["has failed. ", "See what went wrong"] };
  for (let state = run.state; ;) {
    if (state in results) {
      words.textContent = `The run ${run.dag_run_id} ${results[state][0]}`;
      link.textContent = results[state][1];
      return;
    }
    await new Promise((resume) => setTimeout(resume, RUN_MS));
    try {
      ({ state } = await ask("GET", `/api/v2/dags/${run.dag_id}/dagRuns/${encodeURIComponent(run.dag_run_id)}`));
    } catch {
      return;
    }
  }
}

async function ask(method, path, body) {
  const headers = { "Content-Type": "application/json", Accept: "application/json" };
  const reply = await fetch(base + path, { method, headers, credentials: "same-origin", body: JSON.stringify(body) });
  if (reply.ok) return reply.json();
  const refusal = await reply.json().catch(() => ({}));
  throw new Error(why(reply.status, refusal.detail));
}

function why(status, detail) {
  const reason = typeof detail === "string" ? detail : detail ? JSON.stringify(detail) : "";
  const words = {
    401: "You are no longer logged in. Log in to Airflow again, then reload this page.",
    403: "You may view this page, but not start runs from it. Ask an administrator of this Airflow for a role that may (with its simple login: user or above). Nothing was changed.",
    404: "The DAG for this is missing. See Airflow's import errors.",
    409: "Airflow is already starting such a run. Wait a moment and try again.",
    422: "Airflow did not accept the values.",
  };
  return `${words[status] ?? `Airflow answered ${status}.`}${reason && status !== 403 ? ` (${reason})` : ""}`;
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-outside]");
  if (!link || event.ctrlKey || event.metaKey || window.parent === window) return;
  event.preventDefault();
  goOutside(link.href);
});

followTheme();
localTimes(document);
