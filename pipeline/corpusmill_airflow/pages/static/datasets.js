// The page of all datasets: opens the history of one, compares two of its versions, and keeps itself up to date.
"use strict";

const PAUSE_MS = 10000;
const opened = new Set();
const chosen = new Map(); // the history of a dataset -> its versions to compare, in the order of choosing
const answers = new Map(); // the history of a dataset -> what Airflow answered

const search = document.getElementById("search");

function showFound() {
  const words = search.value.trim().toLowerCase();
  for (const row of document.querySelectorAll("tr[data-name]")) {
    const isFound = row.dataset.name.includes(words);
    row.hidden = !isFound;
    const history = row.nextElementSibling;
    if (history?.matches(".history")) history.hidden = !isFound || !opened.has(history.id);
  }
}

search.addEventListener("input", showFound);

function showOpened() {
  for (const button of document.querySelectorAll("[data-history]")) {
    const isOpen = opened.has(button.dataset.history);
    button.setAttribute("aria-expanded", String(isOpen));
  }
  showFound();
  for (const history of document.querySelectorAll("tr.history")) {
    const two = chosen.get(history.id) ?? [];
    for (const box of history.querySelectorAll("[data-version]")) box.checked = two.includes(box.dataset.version);
    history.querySelector("[data-compare]").disabled = two.length !== 2;
    history.querySelector(".answer").replaceChildren(...(answers.get(history.id) ?? []));
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-history]");
  if (!button) return;
  const name = button.dataset.history;
  if (!opened.delete(name)) opened.add(name);
  showOpened();
});

document.addEventListener("change", (event) => {
  const box = event.target.closest("[data-version]");
  if (!box) return;
  const { id } = box.closest("tr.history");
  const others = (chosen.get(id) ?? []).filter((version) => version !== box.dataset.version);
  chosen.set(id, box.checked ? [...others.slice(-1), box.dataset.version] : others); // a third takes the first one's place
  showOpened();
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-compare]");
  if (!button) return;
  const history = button.closest("tr.history");
  // The newest stands first.
  const [later, earlier] = [...new Set([...history.querySelectorAll("[data-version]:checked")].map((box) => box.dataset.version))];
  const { dataset, work } = button.dataset;
  button.disabled = true;
  try {
    answers.set(history.id, await startRun("compare_versions", { dataset, work_folder: work, old: earlier, new: later }));
  } catch (error) {
    answers.set(history.id, [error.message]);
  }
  showOpened();
});

async function keepUp() {
  if (!document.hidden) {
    try {
      say(await refresh(location.href, ["datasets"]));
      showOpened();
    } catch {
      say("Airflow does not respond. This page will retry.");
    }
  }
  setTimeout(keepUp, PAUSE_MS);
}

setTimeout(keepUp, PAUSE_MS);
