// Puts the page together and starts the connection.
import "./app.css";
import { Client } from "./client.ts";
import { h } from "./dom.ts";
import { Store } from "./store.ts";
import { mountTip } from "./tip.ts";
import { adviceCard } from "./views/advice.ts";
import { browseCard } from "./views/browse.ts";
import { clusterCard } from "./views/cluster.ts";
import { commandCard } from "./views/command.ts";
import { debtCard } from "./views/debt.ts";
import { explainCard } from "./views/explain.ts";
import { filterMap } from "./views/filters.ts";
import { footer } from "./views/footer.ts";
import { header } from "./views/header.ts";
import { hotKeys } from "./views/keys.ts";
import { memory } from "./views/memory.ts";
import { series } from "./views/series.ts";
import { commands, slowLog } from "./views/slow.ts";
import { terraces } from "./views/terraces.ts";

const store = new Store();
const { root: explain_card, explain } = explainCard(store);
const app = document.getElementById("app");
app?.append(
  h("a", { class: "skip", href: "#terraces" }, "To the tree"),
  header(store),
  h("main", {},
    terraces(store), memory(store), hotKeys(store, explain), clusterCard(store), adviceCard(store), debtCard(store), explain_card,
    series(store), filterMap(store), slowLog(store), commands(store), browseCard(store, explain), commandCard()),
  footer(store),
);
mountTip();
new Client(store).start();
