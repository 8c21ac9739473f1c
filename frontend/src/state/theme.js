// Light or dark: the reader's choice, else what surrounds the page (a notebook, the system).
import { signal } from "@preact/signals";

const dark = window.matchMedia("(prefers-color-scheme: dark)");

function around() {
  const { body } = document;
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false" ? "dark" : "light";
  if (body.classList.contains("vscode-dark") || body.classList.contains("dark")) return "dark";
  if (body.classList.contains("vscode-light")) return "light";
  return dark.matches ? "dark" : "light";
}

const stored = () => {
  try {
    return window.localStorage.getItem("wrt-theme");
  } catch {
    return null; // storage is closed to pages opened from disk in some browsers
  }
};

export function createTheme() {
  const chosen = stored();
  const theme = signal(chosen === "dark" || chosen === "light" ? chosen : around());
  const follow = () => stored() === null && (theme.value = around());
  dark.addEventListener("change", follow);
  return {
    theme,
    toggle() {
      theme.value = theme.value === "dark" ? "light" : "dark";
      try {
        window.localStorage.setItem("wrt-theme", theme.value);
      } catch {
        /* the choice lasts as long as the page */
      }
    },
    close: () => dark.removeEventListener("change", follow),
  };
}
