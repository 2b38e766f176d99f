// Plans: another tree is previewed step by step, drawn on the map, and carried out.

import { byId, element } from "./dom.js";
import { post } from "./stream.js";

export class PlanPanel {
  constructor(failed, showGoal) {
    this.failed = failed;
    this.showGoal = showGoal;
    this.picture = null;
    this.plan = null;
    byId("plan-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#preview();
    });
    byId("plan-apply").addEventListener("click", () => this.#apply());
    byId("plan-stop").addEventListener("click", () => post("/api/stop", {}).catch((error) => this.#problem(error)));
    byId("plan-moving").addEventListener("change", () => this.#fill());
    byId("plan-current").addEventListener("click", () => {
      const links = this.picture ? this.picture.links.map((link) => [link.a, link.b]) : [];
      byId("plan-links").value = `[${links.map((link) => JSON.stringify(link)).join(",\n ")}]`;
    });
  }

  show(picture) {
    this.picture = picture;
    this.#fill();
  }

  #fill() {
    if (!this.picture) return;
    const names = this.picture.brokers.map((broker) => broker.id).sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    options("plan-moving", names);
    const moving = byId("plan-moving").value;
    const beside = this.picture.links.filter((link) => link.a === moving || link.b === moving).map((link) => (link.a === moving ? link.b : link.a));
    options("plan-old", beside.sort());
    options("plan-new", names.filter((name) => name !== moving && !beside.includes(name)));
  }

  async #preview() {
    const written = byId("plan-links").value.trim();
    let wanted;
    try {
      wanted = written ? { links: JSON.parse(written) } : { move: ["plan-moving", "plan-old", "plan-new"].map((id) => byId(id).value) };
    } catch (error) {
      this.#problem(new Error(`the links are not JSON: ${error.message}`));
      return;
    }
    this.#forget();
    byId("plan-preview").textContent = "looking for the steps…";
    try {
      const found = await post("/api/plan", wanted);
      this.plan = found.plan;
      this.showGoal(found.goal);
      byId("plan-apply").disabled = found.steps.length === 0;
      byId("plan-preview").replaceChildren(...previewOf(found));
    } catch (error) {
      byId("plan-preview").replaceChildren();
      this.#problem(error);
    }
  }

  async #apply() {
    if (!this.plan) return;
    byId("plan-apply").disabled = true;
    try {
      this.state(await post("/api/apply", { plan: this.plan }));
    } catch (error) {
      this.#problem(error);
    }
  }

  #forget() {
    this.plan = null;
    this.showGoal(null);
    byId("plan-apply").disabled = true;
    byId("plan-state").replaceChildren();
  }

  #problem(error) {
    byId("plan-state").replaceChildren(element("p", { class: "problem" }, this.failed(error)));
  }

  state(plan) {
    const shown = JSON.stringify(plan);
    if (plan.state === "idle" || shown === this.shown) return;
    this.shown = shown;
    const running = plan.state === "running" || plan.state === "paused";
    byId("plan-stop").hidden = !running;
    if (!running) this.showGoal(null);
    const words = { running: "Under way", finished: "Done", stopped: "Stopped", failed: "Failed", paused: "Paused" };
    byId("plan-state").replaceChildren(
      element("p", {}, `${words[plan.state] || plan.state}: ${plan.done} of ${plan.steps} steps.`),
      element("progress", { max: plan.steps || 1, value: plan.done, "aria-label": "Steps that are done" }),
      ...(plan.problem ? [element("p", { class: "problem" }, plan.problem)] : []),
    );
  }
}

function options(id, names) {
  const select = byId(id);
  if (JSON.stringify([...select.options].map((option) => option.value)) === JSON.stringify(names)) return;
  const chosen = select.value;
  select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  if (names.includes(chosen)) select.value = chosen;
}

function previewOf(found) {
  if (!found.steps.length) return [element("p", {}, "The network is that tree already.")];
  const felt = (step) => (step.pairs_rerouted ? `moves ${step.brokers_moved}, ${step.pairs_rerouted} paths change` : "nothing else notices");
  const pauses = Object.entries(found.pauses).map(([name, count]) => `${name} ${count}`).join(", ");
  return [
    element("p", {}, `${found.steps.length} step${found.steps.length === 1 ? "" : "s"}${found.shortest ? ", no plan has fewer" : ""}. No broker has more than ${found.links_most} links on the way.`),
    element("ol", { class: "steps" }, ...found.steps.map((step) => element("li", {}, element("code", {}, step.step), element("small", {}, felt(step))))),
    element("p", { class: "muted" }, `Take part in a step: ${pauses || "none"}.`),
  ];
}
