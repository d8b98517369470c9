"""What a developer's machine needs: embedded servers, supervised processes, the demo and its live view."""
