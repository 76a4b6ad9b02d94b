# rlkreplay: replay of what rlktrain recorded (docs/replay.md).
rlk_add_program(rlkreplay rlkreplay.c rlkreplay_child.c rlkreplay_relaunch.c)
target_link_libraries(rlkreplay PRIVATE rlk_cli_common rlk_replayer rlk_archive rlk::lmdb)
