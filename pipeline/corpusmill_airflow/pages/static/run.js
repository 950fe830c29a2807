// The page of a run: progress while it runs, the report when it is written, and the reprocessing of a shard.
"use strict";

const BUSY_MS = 2000;
const OVER_MS = 15000;
const FOLLOW_MS = 60000;
const FIRST = ["latest-stays", "flow"];
const here = location.pathname.replace(/\/$/, "");
let shownReport = "";
let filter = "";
let wanted = "";

const head = () => document.getElementById("head").dataset;

// --- the report ---------------------------------------------------------------------------------------------------

async function showReport() {
  const state = `${head().report} ${head().state} ${head().over}`;
  if (state === shownReport) return;
  const first = document.getElementById("report-first");
  const rest = document.getElementById("report-rest");
  if (head().report !== "yes" || head().over !== "yes") {
    first.replaceChildren();
    rest.replaceChildren();
    document.querySelector("nav.sections")?.remove();
    shownReport = state;
    return;
  }
  const answer = await fetch(`${here}/report`, { credentials: "same-origin" });
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const parts = [...page.querySelectorAll("main > *:not(header)")].map((one) => document.adoptNode(one));
  const goesFirst = (one) => one.matches(".figures") || FIRST.includes(one.id);
  first.replaceChildren(...parts.filter(goesFirst));
  rest.replaceChildren(...parts.filter((one) => !goesFirst(one)));
  addSections();
  addCopyButtons(rest);
  shownReport = state;
}

// Jumps within the page; its own sections only, so that no address can lead elsewhere.
function addSections() {
  document.querySelector("nav.sections")?.remove();
  const nav = document.createElement("nav");
  nav.className = "sections";
  const named = [["flow", "Flow"], ["shards", "Shards"], ["duplicates", "Duplicates"], ["lengths", "Lengths"],
    ["shuffle", "Shuffle"], ["stages", "Steps"], ["outputs", "Outputs"], ["train", "Train on it"],
    ["estimate", "Estimate"], ["balance", "Balance"]];
  for (const [id, name] of named) {
    if (!document.getElementById(id)?.children.length) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.addEventListener("click", () => document.getElementById(id).scrollIntoView({ behavior: "smooth" }));
    nav.append(button);
  }
  document.getElementById("report-first").before(nav);
}

function addCopyButtons(root) {
  for (const text of root.querySelectorAll("pre.copyable")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "small copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      button.textContent = (await copy(text)) ? "Copied" : "Select and copy manually";
      setTimeout(() => { button.textContent = "Copy"; }, 2500);
    });
    text.before(button);
  }
}

async function copy(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    return true;
  } catch { // not allowed here: over plain HTTP, or in this frame
    const range = document.createRange();
    range.selectNodeContents(element);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    return document.execCommand("copy");
  }
}

// --- shards -------------------------------------------------------------------------------------------------------

function showFiltered() {
  for (const button of document.querySelectorAll("[data-filter]")) {
    button.setAttribute("aria-pressed", String(button.dataset.filter === filter));
  }
  for (const row of document.querySelectorAll("#shards tr[data-shard]")) {
    row.hidden = (filter && row.dataset.word !== filter) || !row.dataset.shard.includes(wanted);
  }
  const search = document.querySelector("#shards input[type=search]");
  if (search && search.value !== wanted) search.value = wanted;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-filter]");
  if (!button) return;
  filter = button.dataset.filter;
  showFiltered();
});

document.addEventListener("input", (event) => {
  if (!event.target.matches("#shards input[type=search]")) return;
  wanted = event.target.value.trim();
  showFiltered();
});

// --- reprocessing ---------------------------------------------------------------------------------------------------

const dialog = document.getElementById("reprocess");
let place = -1; // the map index of the shard's tasks

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-reprocess]");
  if (!button) return;
  dialog.querySelector("[data-shard]").textContent = button.dataset.reprocess;
  place = Number(button.dataset.place);
  answer("", false);
  dialog.querySelector("[data-go]").disabled = false;
  offerThisRun();
  dialog.showModal();
});

// Only where the run has a task with which the step begins: after a run that changed nothing there is none.
function offerThisRun() {
  const [anew, here] = dialog.querySelector("form").elements.where;
  here.disabled = place < 0 || !chosenStep().task;
  if (here.disabled) anew.checked = true;
}

const chosenStep = () => dialog.querySelector("[name=stage]").selectedOptions[0]?.dataset ?? {};

dialog.addEventListener("change", offerThisRun);

dialog.querySelector("[data-go]").addEventListener("click", async (event) => {
  event.target.disabled = true;
  try {
    await reprocess();
  } catch (error) {
    answer(error.message, true);
    event.target.disabled = false;
  }
});

async function reprocess() {
  const form = dialog.querySelector("form");
  const shard = Number(dialog.querySelector("[data-shard]").textContent);
  if (form.where.value === "here") await clearTask(chosenStep());
  else await reprocessAnew(form, shard);
}

async function reprocessAnew(form, shard) {
  const conf = { dataset: head().dataset, work_folder: head().work, plan: head().plan, stage: form.stage.value, shard };
  if (form.unpause?.checked) await ask("PATCH", "/api/v2/dags/reprocess_shard?update_mask=is_paused", { is_paused: false });
  const [begun, link] = await startRun("reprocess_shard", conf);
  answer(begun, false, link);
}

async function clearTask({ task, mapped }) {
  await ask("POST", `/api/v2/dags/${encodeURIComponent(head().dag)}/clearTaskInstances`, {
    dry_run: false, dag_run_id: head().run, task_ids: [mapped === "yes" ? [task, place] : task], only_failed: false, include_downstream: true,
  });
  answer("The shard's task and what follows begin again. This page shows their progress.", false);
  begunAgain = Date.now();
  keepUp();
}

function answer(text, isBad, link) {
  const place = dialog.querySelector(".answer");
  place.hidden = !text;
  place.className = `answer notice ${isBad ? "bad" : "good"}`;
  place.replaceChildren(text, ...(link ? [link] : []));
  dialog.querySelector("[value=cancel]").textContent = text && !isBad ? "Close" : "Cancel"; // nothing is left to cancel
}

// --- keeping up ---------------------------------------------------------------------------------------------------

let timer;
let begunAgain = 0; // when this page let tasks of a run begin again that was over; Airflow may take seconds to say so

async function keepUp() {
  if (!document.hidden) {
    try {
      // The steps to begin with are those of tasks that the run has by now.
      say(await refresh(`${here}/live`, ["head", "shards", ...(dialog.open ? [] : ["reprocess-stage"])]));
      showFiltered();
      await showReport();
    } catch {
      say("Airflow does not respond. This page will retry.");
    }
  }
  keepUpLater();
}

function keepUpLater() {
  const rests = head().over === "yes" && head().unread === "0" && Date.now() - begunAgain > FOLLOW_MS;
  clearTimeout(timer); // of the other round, when one was begun before its time
  timer = setTimeout(keepUp, rests ? OVER_MS : BUSY_MS);
}

showReport().finally(keepUpLater);
