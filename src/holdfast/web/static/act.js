// What the buttons of a page do: the same calls that anybody may make, with the token that the
// login left behind `#`.  It is kept for this origin: another port of the host is another one.

const HANDED = "#token=";
if (location.hash.startsWith(HANDED)) {
  localStorage.setItem("token", location.hash.slice(HANDED.length));
  history.replaceState(null, "", location.pathname + location.search);
}

export function token() {
  return localStorage.getItem("token") ?? "";
}

export function toast(text) {
  const line = document.createElement("p");
  line.textContent = text;
  document.getElementById("toasts").append(line);
  setTimeout(() => line.remove(), 6_000);
}

// What a verb answers: its envelope, or an object with `error`.
export async function call(verb, body) {
  const answer = await fetch(`/api/${verb}`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-holdfast-token": token() },
    body: JSON.stringify(body),
  });
  return answer.json();
}

export async function post(verb, body) {
  const told = await call(verb, body);
  if (told.error) { toast(`${told.error.message}. ${told.error.hint ?? ""}`); return null; }
  toast(told.detail ?? "done");
  return told;
}

// What a person wrote into the field next to the buttons that end a task.
function saidBeside(button) {
  if (!["task/done", "task/drop"].includes(button.dataset.post)) return {};
  const outcome = button.parentElement.querySelector("input[name=outcome]")?.value.trim();
  return outcome ? { outcome } : {};
}

async function verify(button) {
  const verdict = button.parentElement.querySelector("[data-verdict]");
  verdict.textContent = "reading…";
  const answer = await fetch(`/api/ledger/verify?agent=${encodeURIComponent(button.dataset.verify)}`);
  const told = await answer.json();
  const sound = answer.ok && told.counts.problems === 0 && told.counts.bad_lines === 0;
  const first = answer.ok ? told.rows.find((row) => row.state !== "sound") ?? told.rows[0] : null;
  verdict.className = "state";
  verdict.dataset.is = sound ? "good" : "bad";
  const words = first ? `${sound ? "intact" : first.state}, ${first.detail}` : told.error?.message ?? "no ledger";
  verdict.replaceChildren(document.createElement("i"), words);
}

export function act() {
  document.addEventListener("click", (click) => {
    const button = click.target.closest("button");
    if (!button) return;
    if (button.dataset.verify) verify(button);
    if (button.dataset.post) post(button.dataset.post, { ...JSON.parse(button.dataset.body), ...saidBeside(button) });
  });
  document.addEventListener("submit", async (sent) => {
    const form = sent.target;
    if (!form.dataset.post) return;
    sent.preventDefault();
    const fields = Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));
    if (await post(form.dataset.post, fields)) form.reset();
  });
}
