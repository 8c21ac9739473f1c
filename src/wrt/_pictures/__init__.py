"""Pictures of plain arrays: heat maps and bars by matplotlib, tables by HTML. Nothing here knows a derivative."""
