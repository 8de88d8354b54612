#!/bin/sh
# After an installation, upgrade or removal: systemd reads the units again. No unit is started or restarted, since that would move leadership.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
