// Markup without a compiler: text stays text, since Preact makes nodes and never parses HTML.
import htm from "htm";
import { h } from "preact";

export const html = htm.bind(h);
