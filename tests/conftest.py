"""What every test shares."""

from hypothesis import settings

# A slow machine is no failure: speed is measured by `counterfoil bench`, never by a test.
settings.register_profile("counterfoil", deadline=None)
settings.load_profile("counterfoil")
