// The page of a puzzle: it asks the server again and again whether the learner's file has changed.

const live = /** @type {HTMLElement} */ (document.getElementById("live"));
const input = /** @type {HTMLInputElement} */ (document.getElementById("text"));
const EVERY = 700; // milliseconds
let version = "";

async function refresh() {
  const query = new URLSearchParams({ text: input.value, version });
  const response = await fetch(`api/program?${query}`).catch(() => null);
  if (!response?.ok) {
    live.textContent = "The server has ended: start it again with regard write FILE.py --page";
    version = "";
    return;
  }
  const answer = /** @type {{version: string, html: string | null}} */ (await response.json());
  if (answer.html === null) return;
  version = answer.version;
  live.replaceChildren(...new DOMParser().parseFromString(answer.html, "text/html").body.childNodes);
}

async function follow() {
  await refresh();
  setTimeout(follow, EVERY);
}

input.addEventListener("input", refresh);
live.addEventListener("click", async (event) => {
  const button = /** @type {HTMLButtonElement} */ (event.target);
  if (button.id !== "train") return;
  button.disabled = true;
  await fetch("api/train", { method: "POST" });
});
follow();
