import { greeting } from "./greeting.js";

function show(text) {
  document.querySelector("#greeting").textContent = text;
}

show(greeting);
import.meta.hot?.accept("./greeting.js", (changed) => show(changed.greeting));
