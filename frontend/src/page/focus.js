// Focus that stays in the page: what had it may be replaced by the next answer.
import { useEffect } from "preact/hooks";

/** The nearest thing that still stands where the focus was: the picture of the same side, else the page itself. */
const heir = (root, role) => (role && root.querySelector(`[data-role="${role}"] :is(.wrt-heat, .wrt-single)`)) || root;

/** Without it the focus would fall to the document, and in a notebook the next key to a cell, which some keys delete. */
export function useKeptFocus(root) {
  useEffect(() => {
    const page = root.current;
    let last = null;
    let role = null;
    const onFocus = ({ target }) => {
      last = target;
      role = target.closest("[data-role]")?.dataset.role ?? null;
    };
    const onLeave = ({ relatedTarget }) => {
      if (relatedTarget && !page.contains(relatedTarget)) last = null;
    };
    const watch = new MutationObserver(() => {
      if (last === null || last.isConnected) return;
      const now = page.getRootNode().activeElement;
      if (now === null || now === document.body) heir(page, role).focus({ preventScroll: true });
      else last = null;
    });
    page.addEventListener("focusin", onFocus);
    page.addEventListener("focusout", onLeave);
    watch.observe(page, { childList: true, subtree: true });
    return () => {
      watch.disconnect();
      page.removeEventListener("focusin", onFocus);
      page.removeEventListener("focusout", onLeave);
    };
  }, []);
}
